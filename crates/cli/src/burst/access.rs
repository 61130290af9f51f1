//! `entresol burst key` and `ticket`: who may use a burst buffer; and the credentials of its other commands.

use crate::output;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use entresol_burst::{JobId, Owner};
use entresol_burst_live::{Claims, Credential, Key};
use entresol_service::values::duration;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Environment variable with the path of a ticket, for commands that are given none.
const TICKET: &str = "ENTRESOL_BURST_TICKET";
/// Environment variable with the path of the key, for daemons and administrators' commands that are given none.
const KEY: &str = "ENTRESOL_BURST_KEY";

/// Make a key for a cluster
///
/// The file has 32 random bytes in hexadecimal digits, and only its owner may read it. With --key FILE the daemons of a burst
/// buffer serve the holders of this key and of its tickets alone, and take each user for another one. The same file is on the
/// coordinator's host and on every node.
#[derive(Args)]
pub struct KeyArgs {
    /// The file, which must not exist
    pub file: PathBuf,
}

/// Print a ticket, with which a user may use one job
///
/// The user keeps it in a file that nobody else may read, and names it by --ticket FILE or in ENTRESOL_BURST_TICKET. Whoever
/// reads it can use the job until it ends. What the job stores counts as this user's, and belongs to it on the parallel file
/// system.
#[derive(Args)]
pub struct TicketArgs {
    /// File with the key of the cluster [default: $ENTRESOL_BURST_KEY]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Number of the job
    #[arg(long, value_name = "N")]
    pub job: u64,
    /// The user: a name, or a number
    #[arg(long, value_name = "USER")]
    pub user: String,
    /// The group of the user's files: a name, or a number [default: the user's own]
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Time until the ticket ends: 90m, 12h, 30d
    #[arg(long = "for", value_name = "TIME", value_parser = duration, default_value = "30d")]
    pub time: Duration,
}

/// Makes a key.
pub fn key(arguments: &KeyArgs) -> Result<()> {
    Key::create(&arguments.file).with_context(|| arguments.file.display().to_string())
}

/// Prints a ticket.
pub fn ticket(arguments: &TicketArgs) -> Result<()> {
    let file = key_file(arguments.key.as_deref());
    let key = Key::load(&file.context("a ticket needs the key: --key FILE")?)?;
    let uid = number(&arguments.user, "id", &["-u"]).context("--user")?;
    let gid = match &arguments.group {
        Some(group) => number(group, "getent", &["group"]).context("--group")?,
        None => number_of("id", &["-g", "--", &arguments.user])
            .with_context(|| format!("the group of user {}: give it by --group", arguments.user))?,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let until_s = now.saturating_add(arguments.time).as_secs();
    let claims = Claims::new(JobId(arguments.job), Owner { uid, gid }, until_s);
    let claims = claims.ok_or_else(|| anyhow!("{} is the number of no user or group", u32::MAX))?;
    output::print(&key.ticket(claims).to_text())
}

/// A number as it is, or that of a name by the system's lists of users or groups.
fn number(text: &str, program: &str, arguments: &[&str]) -> Result<u32> {
    match text.parse() {
        Ok(number) => Ok(number),
        Err(_) => number_of(program, &[arguments, &["--", text]].concat()),
    }
}

/// The number that `id` prints, or the third field of a line of `getent`.
fn number_of(program: &str, arguments: &[&str]) -> Result<u32> {
    let output = Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let field = printed.trim().split(':').nth(if printed.contains(':') { 2 } else { 0 }).unwrap_or_default();
    match field.parse() {
        Ok(number) if output.status.success() => Ok(number),
        _ => bail!("{} is not known", arguments.last().copied().unwrap_or_default()),
    }
}

fn of_environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The file of the key: the given one, or that of the environment.
pub fn key_file(given: Option<&Path>) -> Option<PathBuf> {
    given.map(Path::to_owned).or_else(|| of_environment(KEY))
}

/// The key of a daemon, if it has one.
pub fn daemon_key(given: Option<&Path>) -> Result<Option<Key>> {
    key_file(given).map(|file| Key::load(&file).context("--key")).transpose()
}

/// The credential of an administrator with a file of the key.
pub fn administrator(file: Option<&Path>) -> Result<Option<Credential>> {
    file.map(|file| Credential::key(file).context("--key")).transpose()
}

/// The credential of a user for a job: the given ticket, or that of the environment.
pub fn user(given: Option<&Path>, job: u64) -> Result<Option<Credential>> {
    let Some(file) = given.map(Path::to_owned).or_else(|| of_environment(TICKET)) else { return Ok(None) };
    let credential = Credential::ticket(&file).context("--ticket")?;
    match &credential {
        Credential::Ticket(ticket) if ticket.claims().job != JobId(job) => {
            bail!("--ticket: {} is for job {}, not {job}", file.display(), ticket.claims().job.0)
        }
        _ => Ok(Some(credential)),
    }
}
