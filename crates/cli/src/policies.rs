//! `entresol policies`: what there is to choose from.

use crate::args::PoliciesArgs;
use crate::output;
use anyhow::{Result, bail};
use entresol_policy::{Info, catalogue};
use entresol_report::{Column, Table, TextStyle};
use std::fmt::Write as _;

/// Runs the command.
pub fn run(arguments: &PoliciesArgs) -> Result<()> {
    match &arguments.name {
        Some(name) => output::print(&describe(catalogue::info(name)?)),
        None => list(arguments.family.as_deref()),
    }
}

fn list(family: Option<&str>) -> Result<()> {
    let mut table = Table::new(
        "Policies",
        [
            Column::text("policy"),
            Column::text("family"),
            Column::text("tiers").priority(2),
            Column::text("writes").priority(3),
            Column::text("what it is").priority(1),
        ],
    );
    let wanted: Vec<_> = catalogue::ALL.iter().filter(|info| family.is_none_or(|name| name == info.family)).collect();
    if wanted.is_empty() {
        let mut families: Vec<&str> = catalogue::ALL.iter().map(|info| info.family).collect();
        families.dedup();
        bail!("there is no such family; families: {}", families.join(", "));
    }
    for info in wanted {
        let writes = if info.write_aware { "aware" } else { "" };
        table.push([
            info.name.into(),
            info.family.into(),
            info.tiers.join("+").into(),
            writes.into(),
            info.summary.into(),
        ]);
    }
    output::print(&table.to_text(TextStyle::stdout()))
}

fn describe(info: &Info) -> String {
    let mut text =
        format!("{}: {}\n\n  paper    {}\n  family   {}\n", info.name, info.summary, info.paper, info.family);
    let tiers = info.tiers.iter().zip(info.min_pages).map(|(name, min)| format!("{name} (at least {min} pages)"));
    line(&mut text, "tiers", &tiers.collect::<Vec<_>>().join(", "));
    if info.top_share > 0.0 {
        line(&mut text, "", &format!("of a single size, {:.1} % go to {}", info.top_share * 100.0, info.tiers[0]));
    }
    let mut traits = Vec::new();
    traits.extend(info.write_aware.then_some("tells clean from dirty pages"));
    traits.extend(info.future.then_some("needs to know the future: not for a live cache"));
    traits.extend(info.stack.then_some("a larger cache holds all that a smaller one does"));
    if !traits.is_empty() {
        line(&mut text, "traits", &traits.join("; "));
    }
    for (i, option) in info.options.iter().enumerate() {
        let heading = if i == 0 { "options" } else { "" };
        line(&mut text, heading, &format!("{}={}", option.name, option.default));
        for wrapped in wrap(option.help, 100) {
            line(&mut text, "", &format!("    {wrapped}"));
        }
    }
    text
}

fn line(text: &mut String, heading: &str, value: &str) {
    writeln!(text, "  {heading:<8} {value}").expect("writing to a string");
}

/// Breaks a text into lines of at most `width` characters, at spaces.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is a line");
        if !last.is_empty() && last.len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            last.push_str(if last.is_empty() { "" } else { " " });
            last.push_str(word);
        }
    }
    lines
}
