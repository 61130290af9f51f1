//! Keys of clusters, tickets of users, and seals of grants.
//!
//! The *key* of a cluster is 32 random bytes. Its holders are the daemons and the administrators. A *ticket* lets its holder
//! use one job: its [`Claims`], and as a secret their HMAC-SHA256 under the key, so that a daemon knows the secret of every
//! ticket without a list of tickets. The coordinator *seals* each reservation that it grants, with an HMAC of all fields, and
//! a node takes no grant without its seal. Every purpose has a label of its own under the HMAC.

use crate::mutant::{self, Mutant};
use entresol_burst::{Extent, JobId, Lease, NodeId, Object, Owner, Reservation, Role};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Length of keys, secrets, nonces and codes in bytes.
pub(crate) const SECRET_BYTES: usize = 32;
/// Length of claims in bytes.
pub(crate) const CLAIMS_BYTES: usize = 24;
/// Longest file of a key or a ticket in bytes.
const FILE_BYTES_MAX: u64 = 4096;
/// First line of a ticket.
const TICKET: &str = "entresol-burst-ticket 1";
/// Beginning of the codes of a handshake.
const CLUSTER: &str = "entresol-burst cluster";
/// Beginning of the secrets of tickets.
const SECRET: &str = "entresol-burst ticket";
/// Beginning of seals.
const SEAL: &str = "entresol-burst seal";

/// Random bytes of the operating system.
pub(crate) fn random() -> io::Result<[u8; SECRET_BYTES]> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// A secret that two parties share. It is never printed.
#[derive(Clone)]
pub(crate) struct Secret([u8; SECRET_BYTES]);

impl Secret {
    fn mac(&self, label: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("an HMAC takes a key of any length");
        // Labels have different lengths, and the parts of one label the same ones.
        mac.update(&[label.len() as u8]);
        mac.update(label.as_bytes());
        parts.iter().for_each(|part| mac.update(part));
        mac
    }

    /// The code of parts whose lengths do not vary.
    pub(crate) fn code(&self, label: &str, parts: &[&[u8]]) -> [u8; SECRET_BYTES] {
        self.mac(label, parts).finalize().into_bytes().into()
    }

    /// True if this is the code of the parts. The time of the comparison does not depend on the code.
    pub(crate) fn is_code(&self, label: &str, parts: &[&[u8]], code: &[u8; SECRET_BYTES]) -> bool {
        self.mac(label, parts).verify_slice(code).is_ok()
    }
}

fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

fn to_hex(bytes: &[u8; SECRET_BYTES]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; SECRET_BYTES]> {
    let digits = text.as_bytes();
    let mut bytes = [0; SECRET_BYTES];
    if digits.len() != 2 * SECRET_BYTES {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let digit = |digit: u8| (digit as char).to_digit(16).filter(|_| !digit.is_ascii_uppercase());
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(bytes)
}

/// Reads a small file that nobody but its owner may use.
fn read_private(path: &Path) -> io::Result<String> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(named)?;
    let mode = file.metadata().map_err(named)?.mode();
    if mode & 0o077 != 0 {
        let why = format!("others may use it (mode {:04o}): chmod 600", mode & 0o7777);
        return Err(named(io::Error::new(io::ErrorKind::PermissionDenied, why)));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(named)?;
    Ok(text)
}

/// The key of a cluster.
#[derive(Clone)]
pub struct Key(Secret);

impl Key {
    /// Makes a file with a new key, which only its owner may read.
    ///
    /// # Errors
    /// When the file exists, or cannot be written.
    pub fn create(path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(format!("{}\n", to_hex(&random()?)).as_bytes())?;
        file.sync_all()
    }

    /// Reads a key.
    ///
    /// # Errors
    /// When others than its owner may read the file, or it is no key.
    pub fn load(path: &Path) -> io::Result<Key> {
        let text = read_private(path)?;
        let bytes = from_hex(text.trim_end_matches('\n'));
        bytes.map(Key::of).ok_or_else(|| invalid(format!("{}: not a key of a burst buffer", path.display())))
    }

    /// A key of these bytes.
    pub fn of(bytes: [u8; SECRET_BYTES]) -> Key {
        Key(Secret(bytes))
    }

    /// The secret of the connections of the key's holders.
    pub(crate) fn of_cluster(&self) -> Secret {
        Secret(self.0.code(CLUSTER, &[]))
    }

    /// The secret of a ticket.
    pub(crate) fn of_ticket(&self, claims: &Claims) -> Secret {
        Secret(self.0.code(SECRET, &[&claims.to_bytes()]))
    }

    /// A ticket with these claims.
    pub fn ticket(&self, claims: Claims) -> Ticket {
        Ticket { claims, secret: self.of_ticket(&claims) }
    }

    /// The seal of a reservation.
    pub fn seal(&self, reservation: &Reservation) -> Seal {
        Seal(self.0.code(SEAL, &[&canonical(reservation)]))
    }

    /// True if a reservation has its seal.
    pub fn is_sealed(&self, reservation: &Reservation, seal: Option<&Seal>) -> bool {
        mutant::is(Mutant::SealNotCompared)
            || seal.is_some_and(|seal| self.0.is_code(SEAL, &[&canonical(reservation)], &seal.0))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// All fields of a reservation as bytes. Two reservations have the same bytes only if they are equal.
fn canonical(reservation: &Reservation) -> Vec<u8> {
    let Reservation {
        lease,
        node: NodeId(node),
        incarnation,
        extents,
        role,
        object: Object { job: JobId(job), checkpoint, rank },
        owner: Owner { uid, gid },
        offset,
        guard,
        opened_ns,
        expires_ns,
    } = reservation;
    let role: u64 = match role {
        Role::Primary => 0,
        Role::Copy => 1,
        Role::Parity => 2,
    };
    let of_lease = |&Lease { epoch, number }: &Lease| [u64::from(epoch.0), number];
    let guard = guard.as_ref().map_or([0; 3], |guard| {
        let [epoch, number] = of_lease(guard);
        [1, epoch, number]
    });
    let head = [
        u64::from(*node),
        *incarnation,
        role,
        *job,
        checkpoint.0,
        u64::from(*rank),
        u64::from(*uid),
        u64::from(*gid),
        *offset,
        *opened_ns,
        *expires_ns,
        extents.len() as u64,
    ];
    let of_extents = extents.iter().flat_map(|&Extent { offset, bytes }| [offset, bytes]);
    let numbers = of_lease(lease).into_iter().chain(guard).chain(head).chain(of_extents);
    numbers.flat_map(u64::to_le_bytes).collect()
}

/// Proof that the coordinator has granted a reservation as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal([u8; SECRET_BYTES]);

/// Rights of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The job.
    pub job: JobId,
    /// The user to whom the job's bytes belong.
    pub owner: Owner,
    /// Time from which the ticket is worth nothing, seconds since 1970.
    pub until_s: u64,
}

impl Claims {
    /// Rights without numbers that the kernel takes for "no change"; none if there are such.
    pub fn new(job: JobId, owner: Owner, until_s: u64) -> Option<Claims> {
        (owner.uid != u32::MAX && owner.gid != u32::MAX).then_some(Claims { job, owner, until_s })
    }

    /// True if the holder may use the bytes of a job.
    pub fn has(&self, job: JobId) -> bool {
        self.job == job || mutant::is(Mutant::JobNotCompared)
    }

    /// True if the ticket has ended at a time, nanoseconds since 1970.
    pub fn has_ended(&self, now_ns: u64) -> bool {
        now_ns / 1_000_000_000 >= self.until_s
    }

    pub(crate) fn to_bytes(self) -> [u8; CLAIMS_BYTES] {
        let mut bytes = [0; CLAIMS_BYTES];
        bytes[..8].copy_from_slice(&self.job.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.owner.uid.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.owner.gid.to_le_bytes());
        bytes[16..].copy_from_slice(&self.until_s.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; CLAIMS_BYTES]) -> Option<Claims> {
        let number = |from: usize, to: usize| bytes[from..to].iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte));
        let owner = Owner { uid: number(8, 12) as u32, gid: number(12, 16) as u32 };
        Claims::new(JobId(number(0, 8)), owner, number(16, 24))
    }
}

/// The right to use one job of a burst buffer.
#[derive(Clone)]
pub struct Ticket {
    claims: Claims,
    pub(crate) secret: Secret,
}

impl Ticket {
    /// Rights of the ticket.
    pub fn claims(&self) -> Claims {
        self.claims
    }

    /// The contents of a ticket's file.
    pub fn to_text(&self) -> String {
        let Claims { job, owner, until_s } = self.claims;
        let secret = to_hex(&self.secret.0);
        format!("{TICKET}\njob {}\nuid {}\ngid {}\nuntil {until_s}\nsecret {secret}\n", job.0, owner.uid, owner.gid)
    }

    /// Reads the contents of a ticket's file.
    ///
    /// # Errors
    /// When it is no ticket.
    pub fn parse(text: &str) -> io::Result<Ticket> {
        let mut lines = text.strip_prefix(TICKET).and_then(|rest| rest.strip_prefix('\n')).unwrap_or("").lines();
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let mut ticket = || {
            let job = JobId(field("job")?.parse().ok()?);
            let owner = Owner { uid: field("uid")?.parse().ok()?, gid: field("gid")?.parse().ok()? };
            let claims = Claims::new(job, owner, field("until")?.parse().ok()?)?;
            Some(Ticket { claims, secret: Secret(from_hex(field("secret")?)?) })
        };
        // Only the text that is printed is a ticket: no spare lines, signs or zeros.
        let ticket = ticket().filter(|ticket| ticket.to_text() == text);
        ticket.ok_or_else(|| invalid("not a ticket of a burst buffer"))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({:?}, ..)", self.claims)
    }
}

/// A key or a ticket, by which a client proves who it is.
#[derive(Clone, Debug)]
pub enum Credential {
    /// The key of the cluster: a daemon, or an administrator.
    Key(Key),
    /// A ticket: a user.
    Ticket(Ticket),
}

impl Credential {
    /// Reads a ticket from its file.
    ///
    /// # Errors
    /// When others than its owner may read the file, or it is no ticket.
    pub fn ticket(path: &Path) -> io::Result<Credential> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        Ok(Credential::Ticket(Ticket::parse(&read_private(path)?).map_err(named)?))
    }

    /// Reads the key of the cluster from its file.
    ///
    /// # Errors
    /// As [`Key::load`].
    pub fn key(path: &Path) -> io::Result<Credential> {
        Key::load(path).map(Credential::Key)
    }
}

/// Peer of a connection, as the server knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bearer {
    /// Any process: the server has no key.
    Anyone,
    /// A holder of the key: a daemon, or an administrator.
    Cluster,
    /// A holder of a ticket.
    User(Claims),
}

/// Refusal of a request for another job than the ticket's.
pub(crate) const OTHER_JOB: &str = "the ticket is for another job";

impl Bearer {
    /// The user who bears a ticket; none for the cluster itself, or where users are not told apart.
    pub(crate) fn user(self) -> Option<u32> {
        match self {
            Bearer::Anyone | Bearer::Cluster => None,
            Bearer::User(claims) => Some(claims.owner.uid),
        }
    }

    /// The claims to which a request at a time, nanoseconds since 1970, is bound; none of a peer that may make every request.
    ///
    /// # Errors
    /// The reason of the refusal, when the ticket has ended.
    pub(crate) fn bounds(self, now_ns: u64) -> Result<Option<Claims>, &'static str> {
        match self {
            Bearer::Anyone | Bearer::Cluster => Ok(None),
            Bearer::User(claims) if claims.has_ended(now_ns) => Err("the ticket has ended"),
            Bearer::User(claims) => Ok(Some(claims)),
        }
    }
}

/// Reservations that differ from one in a field each.
#[cfg(test)]
pub(crate) fn altered(one: &Reservation) -> Vec<Reservation> {
    let changes: [fn(&mut Reservation); 20] = [
        |it| it.lease.epoch.0 += 1,
        |it| it.lease.number += 1,
        |it| it.node.0 += 1,
        |it| it.incarnation += 1,
        |it| it.extents[0].offset += 1,
        |it| it.extents[0].bytes += 1,
        |it| it.extents.truncate(1),
        |it| it.extents.swap(0, 1),
        |it| it.role = Role::Copy,
        |it| it.role = Role::Parity,
        |it| it.object.job.0 += 1,
        |it| it.object.checkpoint.0 += 1,
        |it| it.object.rank += 1,
        |it| it.owner.uid += 1,
        |it| it.owner.gid += 1,
        |it| it.offset += 1,
        |it| it.guard = if it.guard.is_none() { Some(it.lease) } else { None },
        |it| it.guard = Some(Lease { number: 77, ..it.lease }),
        |it| it.opened_ns += 1,
        |it| it.expires_ns += 1,
    ];
    let change = |change: &fn(&mut Reservation)| {
        let mut changed = one.clone();
        change(&mut changed);
        changed
    };
    changes.iter().map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_burst::{CheckpointId, Epoch};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    const OWNER: Owner = Owner { uid: 1000, gid: 100 };

    fn claims() -> Claims {
        Claims::new(JobId(17), OWNER, 1_790_000_000).expect("ordinary numbers")
    }

    #[test]
    fn a_key_is_private_and_made_once() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("key");
        Key::create(&path).expect("a new file");
        let key = Key::load(&path).expect("a key");
        assert_eq!(format!("{key:?}"), "Key(..)");
        assert_eq!(Key::create(&path).expect_err("it is there").kind(), io::ErrorKind::AlreadyExists);
        for mode in [0o640, 0o604, 0o620, 0o601] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its owner may");
            let why = Key::load(&path).expect_err("others may use it").to_string();
            assert!(why.contains("others may use it") && why.contains("chmod 600"), "{why}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o400)).expect("its owner may");
        Key::load(&path).expect("stricter than 0600");
        for text in ["", "00", &"0".repeat(65), &"g".repeat(64), &"A".repeat(64)] {
            let path = scratch.path().join(format!("damaged-{}", text.len()));
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(path.clone())
                .expect("a file");
            file.write_all(text.as_bytes()).expect("written");
            assert!(Key::load(&path).expect_err("no key").to_string().contains("not a key"), "{text}");
        }
    }

    #[test]
    fn a_ticket_is_what_it_prints_and_has_the_secret_of_its_claims() {
        let key = Key::of([7; SECRET_BYTES]);
        let ticket = key.ticket(claims());
        let text = ticket.to_text();
        let again = Ticket::parse(&text).expect("a ticket");
        assert_eq!((again.claims(), again.to_text()), (claims(), text.clone()));
        assert!(!format!("{ticket:?}").contains(&to_hex(&ticket.secret.0)));
        let same = |other: &Ticket| other.secret.0 == ticket.secret.0;
        assert!(same(&again) && !same(&Key::of([8; SECRET_BYTES]).ticket(claims())));
        for changed in [
            Claims { job: JobId(18), ..claims() },
            Claims { owner: Owner { uid: 1001, ..OWNER }, ..claims() },
            Claims { owner: Owner { gid: 101, ..OWNER }, ..claims() },
            Claims { until_s: 1_790_000_001, ..claims() },
        ] {
            assert!(!same(&key.ticket(changed)), "{changed:?}");
            assert_eq!(Claims::from_bytes(&changed.to_bytes()), Some(changed));
        }
        assert!(Ticket::parse(&text.replace("uid 1000", "uid 4294967295")).is_err(), "-1 changes no user");
        for damaged in [text.replace("uid 1000", "uid 01000"), format!("{text}\n"), text.replace("job", "jab")] {
            assert!(Ticket::parse(&damaged).is_err(), "{damaged}");
        }
        assert!(!claims().has_ended(1_789_999_999_999_999_999) && claims().has_ended(1_790_000_000_000_000_000));
    }

    #[test]
    fn a_seal_is_of_one_reservation_and_one_key() {
        let key = Key::of([7; SECRET_BYTES]);
        let one = Reservation {
            lease: Lease { epoch: Epoch(1), number: 2 },
            node: NodeId(3),
            incarnation: 4,
            extents: vec![Extent { offset: 0, bytes: 5 }, Extent { offset: 9, bytes: 6 }],
            role: Role::Primary,
            object: Object { job: JobId(7), checkpoint: CheckpointId(8), rank: 9 },
            owner: OWNER,
            offset: 10,
            guard: Some(Lease { epoch: Epoch(1), number: 11 }),
            opened_ns: 12,
            expires_ns: 13,
        };
        let seal = key.seal(&one);
        assert!(key.is_sealed(&one, Some(&seal)) && !key.is_sealed(&one, None));
        assert!(!Key::of([8; SECRET_BYTES]).is_sealed(&one, Some(&seal)));
        for other in altered(&one) {
            assert!(!key.is_sealed(&other, Some(&seal)), "{other:?}");
            assert!(key.is_sealed(&other, Some(&key.seal(&other))));
        }
    }
}
