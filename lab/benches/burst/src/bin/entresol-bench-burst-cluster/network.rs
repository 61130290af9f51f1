//! The emulated network: a namespace for each node, the coordinator and the PFS, joined by two bridges in one more namespace.
//!
//! Bytes go over the bridge of data, each end of a link behind a token bucket (`tbf`). Messages to the coordinator go over the other one,
//! which has no buckets: the simulation has them take no time. The loopback of a node has a bucket at the rate of local copies.

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

const PREFIX: &str = "entresol-burst-";
const BRIDGES: &str = "entresol-burst-bridges";
/// Bytes of a frame after the head of Ethernet.
const MTU: u32 = 3000;
/// Bytes of a frame over the bytes of a program in it: heads of Ethernet, IP, and TCP with time stamps.
const WIRE: f64 = 3014.0 / 2948.0;
/// Smallest, first and largest size of a socket's memory in bytes. Half of it is the window, which stands in a bucket's queue before all that
/// comes after it. Equal windows in one queue are equal shares of its link. With half of this size the buckets ran empty as soon as the
/// processors were busy.
const SOCKET_MEMORY: &str = "4096 16384 32768";
/// Tokens of a full bucket, and the longest queue before it. No frame is dropped: a bucket delays.
const BUCKET: &str = "burst 32kb limit 64mb";

/// A place in the network. Its number is the last byte of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    Node(u32),
    Pfs,
    Coordinator,
}

impl Host {
    fn number(self) -> u32 {
        match self {
            Host::Node(node) => node + 1,
            Host::Pfs => 200,
            Host::Coordinator => 201,
        }
    }

    /// Name of its namespace, and of its ends at the bridges without the first letter.
    pub fn namespace(self) -> String {
        format!("{PREFIX}{}", self.short())
    }

    fn short(self) -> String {
        match self {
            Host::Node(node) => node.to_string(),
            Host::Pfs => "pfs".to_owned(),
            Host::Coordinator => "coordinator".to_owned(),
        }
    }

    /// Address in the network of data.
    pub fn data(self) -> String {
        format!("10.0.0.{}", self.number())
    }

    /// Address in the network of messages to the coordinator.
    pub fn control(self) -> String {
        format!("10.0.1.{}", self.number())
    }

    /// Host of an address in the network of messages.
    pub fn of_control(address: &str) -> Option<Host> {
        match address.strip_prefix("10.0.1.")?.parse().ok()? {
            200 => Some(Host::Pfs),
            201 => Some(Host::Coordinator),
            number => Some(Host::Node(number - 1)),
        }
    }
}

/// Rates of the buckets in bytes of programs a second; none for a network without buckets.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub link: f64,
    pub copy: f64,
    pub pfs: f64,
}

/// Bytes of an interface's counters.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    pub out: u64,
    pub into: u64,
    pub copied: u64,
}

/// Counters of all links.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    pub nodes: Vec<Counted>,
    pub pfs: Counted,
    pub control: Counted,
    /// Frames that a bucket's queue did not take.
    pub dropped: u64,
}

/// A network. It is removed when this is dropped.
pub struct Network {
    nodes: u32,
}

fn tool(program: &str, arguments: &[&str], lines: &str) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| program.to_owned())?;
    child.stdin.take().context("a pipe")?.write_all(lines.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn json(program: &str, arguments: &[&str]) -> Result<Vec<Value>> {
    Ok(serde_json::from_str(&tool(program, arguments, "")?)?)
}

fn bucket(device: &str, rate: f64) -> String {
    format!("qdisc add dev {device} root tbf rate {:.0}bit {BUCKET}\n", rate * WIRE * 8.0)
}

/// Removes the network of an earlier run, and ends the processes in it.
pub fn remove() -> Result<()> {
    let listed = tool("ip", &["netns", "list"], "")?;
    let names = listed.lines().filter_map(|line| line.split(' ').next()).filter(|name| name.starts_with(PREFIX));
    for name in names {
        let processes = tool("ip", &["netns", "pids", name], "")?;
        for process in processes.lines().filter_map(|line| line.trim().parse().ok()).filter_map(Pid::from_raw) {
            // A process that has ended meanwhile is no failure.
            let _ = kill_process(process, Signal::KILL);
        }
        tool("ip", &["netns", "delete", name], "")?;
    }
    Ok(())
}

/// Moves the calling thread into a namespace, and sets how its sockets send.
pub fn enter(host: Host) -> Result<()> {
    let path = format!("/run/netns/{}", host.namespace());
    let file = File::open(&path).with_context(|| path.clone())?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).with_context(|| path)?;
    for (name, value) in [
        ("tcp_congestion_control", "reno"),
        ("tcp_wmem", SOCKET_MEMORY),
        ("tcp_rmem", SOCKET_MEMORY),
        ("tcp_slow_start_after_idle", "0"),
    ] {
        std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value).with_context(|| name.to_owned())?;
    }
    Ok(())
}

impl Network {
    /// Creates the network, after it has removed that of an earlier run.
    pub fn create(nodes: u32, rates: Option<Rates>) -> Result<Network> {
        ensure!(nodes < 200, "at most 199 nodes have addresses");
        remove()?;
        // From here on a failure removes what is there.
        let network = Network { nodes };
        let hosts = network.hosts();
        let added: String = hosts.iter().map(|host| format!("netns add {}\n", host.namespace())).collect();
        tool("ip", &["-batch", "-"], &format!("netns add {BRIDGES}\n{added}"))?;
        let mut links = String::from("link set lo up\n");
        for bridge in ["data", "control"] {
            links += &format!("link add {bridge} mtu {MTU} type bridge\nlink set {bridge} up\n");
        }
        let mut buckets = String::new();
        for host in &hosts {
            let (namespace, short, number) = (host.namespace(), host.short(), host.number());
            for (network, bridge) in ["data", "control"].into_iter().enumerate() {
                let end = format!("{}{short}", &bridge[..1]);
                links += &format!("link add {end} mtu {MTU} type veth peer name {bridge} mtu {MTU} ");
                links += &format!("address 02:00:00:00:0{network}:{number:02x} netns {namespace}\n");
                links += &format!("link set {end} master {bridge} up\n");
            }
            if let Some(rates) = rates {
                let rate = if *host == Host::Pfs { rates.pfs } else { rates.link };
                buckets += &bucket(&format!("d{short}"), rate);
            }
        }
        tool("ip", &["-n", BRIDGES, "-batch", "-"], &links)?;
        tool("tc", &["-n", BRIDGES, "-batch", "-"], &buckets)?;
        for host in &hosts {
            network.furnish(*host, &hosts, rates)?;
        }
        Ok(network)
    }

    fn hosts(&self) -> Vec<Host> {
        (0..self.nodes).map(Host::Node).chain([Host::Pfs, Host::Coordinator]).collect()
    }

    /// Gives a host its addresses, and all neighbours': a table of neighbours that is shared by all namespaces would overflow.
    fn furnish(&self, host: Host, hosts: &[Host], rates: Option<Rates>) -> Result<()> {
        let mut lines = format!("link set lo mtu {MTU} up\n");
        for (network, bridge) in ["data", "control"].into_iter().enumerate() {
            let number = host.number();
            lines += &format!("addr add 10.0.{network}.{number}/24 dev {bridge}\nlink set {bridge} up\n");
            for other in hosts.iter().filter(|&&other| other != host) {
                let number = other.number();
                lines += &format!("neigh replace 10.0.{network}.{number} dev {bridge} nud permanent ");
                lines += &format!("lladdr 02:00:00:00:0{network}:{number:02x}\n");
            }
        }
        let namespace = host.namespace();
        tool("ip", &["-n", &namespace, "-batch", "-"], &lines)?;
        if let Some(rates) = rates {
            let mut buckets = bucket("data", if host == Host::Pfs { rates.pfs } else { rates.link });
            if matches!(host, Host::Node(_)) {
                buckets += &bucket("lo", rates.copy);
            }
            tool("tc", &["-n", &namespace, "-batch", "-"], &buckets)?;
        }
        Ok(())
    }

    /// Counters of all links since the network was created.
    pub fn counters(&self) -> Result<Counters> {
        let bytes = |link: &Value, way: &str| link["stats64"][way]["bytes"].as_u64().unwrap_or_default();
        let links = json("ip", &["-n", BRIDGES, "-j", "-s", "link", "show"])?;
        // The bridge receives what a host has sent.
        let at = |end: &str| {
            let link = links.iter().find(|link| link["ifname"] == end);
            let link = link.with_context(|| format!("no interface {end}"))?;
            anyhow::Ok(Counted { out: bytes(link, "rx"), into: bytes(link, "tx"), copied: 0 })
        };
        let mut counters = Counters { pfs: at("dpfs")?, control: at("ccoordinator")?, ..Counters::default() };
        let mut queues = json("tc", &["-n", BRIDGES, "-j", "-s", "qdisc", "show"])?;
        for node in 0..self.nodes {
            let namespace = Host::Node(node).namespace();
            let own = json("ip", &["-n", &namespace, "-j", "-s", "link", "show", "dev", "lo"])?;
            let copied = own.first().map_or(0, |link| bytes(link, "tx"));
            counters.nodes.push(Counted { copied, ..at(&format!("d{node}"))? });
            queues.extend(json("tc", &["-n", &namespace, "-j", "-s", "qdisc", "show"])?);
        }
        counters.dropped = queues.iter().filter_map(|queue| queue["drops"].as_u64()).sum();
        Ok(counters)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Err(error) = remove() {
            eprintln!("the network is left behind, and removed by the next run: {error:#}");
        }
    }
}
