//! Three tiers with device time: the event loop and cheap device models on top of the policies.

use crate::bounds;
use crate::measure::Times;
use crate::report::{Table, judged};
use entresol_device::profile;
use entresol_sim::{Addresses, Cell, CellOptions, Hierarchy, NamedDevice, TimedOptions, parse_stack};

/// Stacks and the devices under them, the backing store's last.
const CASES: [(&str, &[&str]); 3] = [
    ("multi-tier:8000:50000", &["dram", "optane-dimm", "arulraj-ssd"]),
    ("multi-tier:8000:50000", &["dram", "optane-dimm", "p4800x"]),
    ("lru:2000,multi-tier:8000:50000", &["dram", "dram", "optane-dimm", "p4800x"]),
];

/// Requesters: enough that I/Os of several requests are under way at once.
const CLIENTS: u32 = 8;

/// Runs every case `rounds` times and returns a table of the medians.
pub fn table(addresses: &Addresses, rounds: usize) -> Result<String, String> {
    let mut table = Table::new(&["stack", "devices", "I/Os a request", "Mreq/s", "bound"]);
    for (stack, devices) in CASES {
        let layers = parse_stack(stack).map_err(|error| error.to_string())?;
        let cell = Cell::stack(&layers, stack.to_owned(), addresses).map_err(|skipped| skipped.error.to_string())?;
        let options = TimedOptions { clients: CLIENTS, ..TimedOptions::default() };
        let (mut times, mut ios) = (Times::default(), 0);
        for _ in 0..rounds {
            let hierarchy = hierarchy(&cell, addresses, devices)?;
            let run = cell.run_timed(addresses, hierarchy, &CellOptions::default(), &options);
            let (row, timed) = run.map_err(|error| error.to_string())?;
            times.push(row.cpu_seconds);
            ios = timed.devices.iter().map(|device| device.reads + device.writes).sum();
        }
        let requests = addresses.trace.len() as f64;
        let speed = requests / times.median() / 1e6;
        table.push(vec![
            format!("`{stack}`"),
            devices.join(", "),
            format!("{:.2}", ios as f64 / requests),
            format!("{speed:.1}"),
            judged(speed, Some(bounds::THREE_TIERS), true),
        ]);
    }
    Ok(table.render())
}

fn hierarchy(cell: &Cell, addresses: &Addresses, devices: &[&str]) -> Result<Hierarchy, String> {
    let build = |(name, bytes): (&&str, u64)| -> Result<NamedDevice, String> {
        let device = profile::load(name).and_then(|profile| profile.build(bytes, 42));
        Ok(((*name).to_owned(), device.map_err(|error| error.to_string())?))
    };
    let mut tiers = devices.iter().zip(cell.needs(addresses)).map(build).collect::<Result<Vec<_>, _>>()?;
    let backing = tiers.pop().ok_or("no device")?;
    Ok(Hierarchy { tiers, backing })
}
