//! `entresol policies`: lists and describes the policies.

use crate::output;
use anyhow::{Result, bail};
use clap::Args;
use entresol_policy::{Info, catalogue};
use entresol_render::{Column, Table, TextStyle};
use std::fmt::Write as _;

/// List the policies, or describe one with its options and its paper
#[derive(Args)]
pub struct PoliciesArgs {
    /// The policy
    pub name: Option<String>,
    /// List only policies of this family
    #[arg(long, conflicts_with = "name")]
    pub family: Option<String>,
    /// Print all policies with all options, as Markdown
    #[arg(long, hide = true, conflicts_with_all = ["name", "family"])]
    pub markdown: bool,
}

/// Runs the command.
pub fn run(arguments: &PoliciesArgs) -> Result<()> {
    match &arguments.name {
        _ if arguments.markdown => output::print(&markdown()),
        Some(name) => output::print(&describe(catalogue::info(name)?)),
        None => list(arguments.family.as_deref()),
    }
}

fn list(family: Option<&str>) -> Result<()> {
    let wanted: Vec<_> = catalogue::ALL.iter().filter(|info| family.is_none_or(|name| name == info.family)).collect();
    if wanted.is_empty() {
        let mut families: Vec<&str> = catalogue::ALL.iter().map(|info| info.family).collect();
        families.dedup();
        bail!("there is no family '{}'; families: {}", family.unwrap_or_default(), families.join(", "));
    }
    let table = Table::of("Policies", wanted)
        .column(Column::text("policy"), |info| info.name)
        .column(Column::text("family"), |info| info.family)
        .column(Column::text("tiers").priority(2), |info| info.tiers.join("+"))
        .column(Column::text("writes").priority(3), |info| if info.write_aware { "aware" } else { "" })
        .column(Column::text("description"), |info| info.summary)
        .done();
    output::print(&table.to_text(TextStyle::stdout()))
}

fn describe(info: &Info) -> String {
    let mut text =
        format!("{}: {}\n\n  paper    {}\n  family   {}\n", info.name, info.summary, info.paper, info.family);
    let tiers = info.tiers.iter().zip(info.min_pages).map(|(name, min)| format!("{name} (at least {min})"));
    line(&mut text, "tiers", &format!("{}, in pages", tiers.collect::<Vec<_>>().join(", ")));
    if info.top_share > 0.0 {
        line(&mut text, "", &format!("of a single size, {:.1} % go to {}", info.top_share * 100.0, info.tiers[0]));
    }
    let traits = traits(info);
    if !traits.is_empty() {
        line(&mut text, "traits", &traits.join("; "));
    }
    if !info.tunables.is_empty() {
        line(&mut text, "tunable", &format!("while it runs: {}", tunables(info).join(", ")));
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

/// Options that `entresol tune` may change while the policy runs.
fn tunables(info: &Info) -> Vec<&'static str> {
    info.tunables.iter().map(|tunable| tunable.option).collect()
}

fn traits(info: &Info) -> Vec<&'static str> {
    let mut traits = Vec::new();
    traits.extend(info.write_aware.then_some("tells clean from dirty pages"));
    traits.extend(info.future.then_some("needs to know the future: not for a live cache"));
    traits.extend(info.stack.then_some("a larger cache holds all that a smaller one does"));
    traits
}

/// The families in order, each with the common trait of its policies.
const FAMILIES: [(&str, &str); 12] = [
    ("classic", "Policies found in most systems; the others are measured against them."),
    ("offline", "Policies that know the future and show how far a cache could go. No live cache can use them."),
    ("adaptive", "Recency against frequency, with ghosts that remember what was evicted."),
    (
        "learned",
        "Weights that are learned from mistakes decide between experts, or ages at the next access are learned.",
    ),
    ("modern", "Simple queues with a filter for pages requested only once."),
    ("dirty", "Caches that weigh the cost of writing a dirty page back."),
    ("run", "Policies that keep runs of neighbouring dirty pages together, so that one I/O writes many."),
    ("hybrid", "DRAM and NVRAM side by side in one cache: NVRAM keeps the dirty pages."),
    ("extension", "A flash or NVM device as an extension of the DRAM pool above the disk."),
    ("migration", "DRAM and NVM one above the other, with probabilities for every move between them."),
    ("writebuffer", "Buffers inside an SSD, which only written pages enter and whole erase blocks leave."),
    ("choice", "Policies that let one of several others decide, and switch between them."),
];

/// The catalogue as a chapter of the documentation.
fn markdown() -> String {
    let mut text = format!(
        "# The policies\n\nWritten by `entresol policies --markdown`; a test fails where it is out of date. \
         {} policies in {} families. A policy is named on the command line as `NAME` or `NAME:OPTION=VALUE:...`.\n",
        catalogue::ALL.len(),
        FAMILIES.len(),
    );
    for (family, about) in FAMILIES {
        text += &format!("\n## {family}\n\n{about}\n");
        catalogue::ALL.iter().filter(|info| info.family == family).for_each(|info| text += &entry(info));
    }
    text
}

/// One policy of the chapter.
fn entry(info: &Info) -> String {
    let mut text = format!("\n### {}\n\n{}.\n\n", info.name, escaped(info.summary));
    text += &format!("*Paper:* {}\n\n", escaped(info.paper));
    let tiers = info.tiers.iter().zip(info.min_pages).map(|(name, min)| format!("{name} (at least {min})"));
    text += &format!("*Tiers, in pages:* {}", tiers.collect::<Vec<_>>().join(", "));
    if info.top_share > 0.0 {
        text += &format!("; of a single size, {:.1} % go to {}", info.top_share * 100.0, info.tiers[0]);
    }
    text += "\n";
    let traits = traits(info);
    if !traits.is_empty() {
        text += &format!("\n*Traits:* {}\n", traits.join("; "));
    }
    if !info.tunables.is_empty() {
        text += &format!("\n*Tunable while it runs:* {}\n", tunables(info).join(", "));
    }
    if !info.options.is_empty() {
        text += "\n| option | default | |\n|---|---|---|\n";
        for option in info.options {
            text += &format!("| `{}` | `{}` | {} |\n", option.name, option.default, escaped(option.help));
        }
    }
    text
}

/// Escapes plain text for Markdown.
fn escaped(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.trim_end_matches('.').chars().fold(String::new(), |mut out, c| {
        if "\\`*_<>|[]".contains(c) {
            out.push('\\');
        }
        out.push(c);
        out
    })
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
