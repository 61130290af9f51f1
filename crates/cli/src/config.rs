//! One TOML configuration for every command of a live cache.
//!
//! A key is an option's long name. A value of the file applies if the command line does not give that option. The file
//! thus shares the options, defaults and errors of the command line. Keys at the top apply to every command that has
//! the option. A command's own keys are in its table, `[serve.nbd]` or `[mount]`.

use anyhow::{Context, Result, anyhow};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Commands that read a configuration, as far as this build has them.
const COMMANDS: &[&[&str]] = &[
    &["serve", "nbd"],
    &["serve", "ublk"],
    &["mount"],
    &["run"],
    &["format"],
    &["check"],
    &["drain"],
    &["stats"],
    &["set"],
    &["upgrade"],
];

/// Options at the top of the file, which mean the same to every command.
const SHARED: &[&str] = &[
    "cache",
    "backing",
    "policy",
    "mode",
    "dram",
    "cache-size",
    "dirty-high",
    "dirty-low",
    "dirty-age",
    "sync-after",
    "sequential-cutoff",
    "wear",
];

/// Options that make sense only on a command line.
const NOT_CONFIGURED: &[&str] =
    &["config", "quiet", "help", "version", "force", "if-lost", "settings", "json", "watch", "command", "place"];

/// Defaults that earlier releases printed; a command without a cache ignores them.
const PRINTED_BEFORE: &[(&str, &str)] = &[("policy", "face-gsc"), ("mode", "write-back")];

/// Head of the text that `entresol config` prints.
const PREAMBLE: &str = "\
# Configuration of Entresol's live cache: the option --config of every command named here.
# A line that begins with # is an option's default, or an example where it has none. The command line overrides.
";

/// A value of the file, with its line.
struct Given {
    value: Value,
    line: usize,
}

enum Value {
    Flag(bool),
    Text(String),
}

/// The command line, with `--config` added to the commands that read it.
pub fn with_option(mut cli: Command) -> Command {
    for path in COMMANDS {
        if descend(&cli, path).is_some() {
            cli = add(cli, path);
        }
    }
    cli
}

fn add(command: Command, path: &[&'static str]) -> Command {
    match path {
        [] => command.arg(
            Arg::new("config").long("config").value_name("FILE").value_parser(clap::value_parser!(PathBuf)).help(
                "TOML file of the arguments not given here, required ones too; `entresol config` prints one with every \
                     default",
            ),
        ),
        [first, rest @ ..] => command.mut_subcommand(first, |inner| add(inner, rest)),
    }
}

fn descend<'a>(command: &'a Command, path: &[&str]) -> Option<&'a Command> {
    path.iter().try_fold(command, |command, name| command.find_subcommand(name))
}

/// Adds the options of a configuration to the arguments; returns the position in the file of each option added.
pub fn extended(cli: &Command, mut arguments: Vec<OsString>) -> Result<(Vec<OsString>, Origins)> {
    // Checked before anything is copied: copies of all commands take longer than the rest of this function, and delay
    // every restart of a cache.
    let named = |argument: &OsString| argument.as_encoded_bytes().starts_with(b"--config");
    if !arguments.iter().any(named) {
        return Ok((arguments, Origins::default()));
    }
    let found = cli.clone().ignore_errors(true).try_get_matches_from(&arguments);
    // Groups know their members only when they are built.
    let cli = &mut cli.clone();
    cli.build();
    let Some((path, matches)) = found.ok().and_then(|matches| chosen(&matches)) else {
        return Ok((arguments, Origins::default()));
    };
    let Some(file) = matches.try_get_one::<PathBuf>("config").ok().flatten() else {
        return Ok((arguments, Origins::default()));
    };
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let given = Reading { cli, file, text: &text }.of(&path)?;
    let command = descend(cli, &path).expect("the parser found it");
    let explicit = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let cached = explicit("cache") || given.iter().any(|(name, _)| name == "cache");
    let mut origins = Origins { file: file.clone(), lines: Vec::new() };
    let mut added = Vec::new();
    for (name, Given { value, line }) in given {
        let arg = option(command, &name).expect("it was looked up");
        let id = arg.get_id().as_str();
        // An option on the command line displaces others of its group in the file: a TCP port displaces a socket.
        let displaced = command.get_groups().filter(|group| !(*group).clone().is_multiple()).any(|group| {
            let members: Vec<&str> = group.get_args().map(clap::Id::as_str).collect();
            members.contains(&id) && members.iter().any(|member| explicit(member))
        });
        // A default that is written out asks for nothing, not even for the options that its option requires.
        let default = matches!(&value, Value::Text(text) if arg.get_default_values().iter().eq([text.as_str()])
            || !cached && PRINTED_BEFORE.contains(&(name.as_str(), text.as_str())));
        if explicit(id) || displaced || default {
            continue;
        }
        match value {
            Value::Flag(true) => added.push(format!("--{name}").into()),
            Value::Flag(false) => {}
            Value::Text(text) if arg.is_positional() => added.push(text.into()),
            Value::Text(text) => added.push(format!("--{name}={text}").into()),
        }
        origins.lines.push((name, line));
    }
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    arguments.splice(end..end, added);
    Ok((arguments, origins))
}

/// The innermost subcommand that was given, and its matches.
fn chosen(matches: &ArgMatches) -> Option<(Vec<String>, ArgMatches)> {
    let (name, inner) = matches.subcommand()?;
    match chosen(inner) {
        Some((path, matches)) => Some(([vec![name.to_owned()], path].concat(), matches)),
        None => Some((vec![name.to_owned()], inner.clone())),
    }
}

/// Configuration file, and the lines in it, of the options that came from the file.
#[derive(Default)]
pub struct Origins {
    file: PathBuf,
    lines: Vec<(String, usize)>,
}

impl Origins {
    /// The position in the file of the option that a parser error names.
    pub fn of(&self, error: &clap::Error) -> Option<String> {
        use clap::error::{ContextKind, ContextValue};
        let Some(ContextValue::String(about)) = error.get(ContextKind::InvalidArg) else { return None };
        let name = about.trim_start_matches('-').split([' ', '=']).next()?;
        let line = self.lines.iter().find(|(given, _)| given == name)?.1;
        Some(format!("{}:{line}", self.file.display()))
    }
}

/// An option of a command that a configuration may give.
fn option<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    options(command).find(|arg| key(arg) == name)
}

fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !NOT_CONFIGURED.contains(&key(arg).as_str()) && !arg.is_last_set())
}

/// The key of an option: its long name, or the name of a positional argument.
fn key(arg: &Arg) -> String {
    arg.get_long().map_or_else(|| arg.get_id().as_str().replace('_', "-"), str::to_owned)
}

/// A configuration being read.
struct Reading<'a> {
    cli: &'a Command,
    file: &'a Path,
    text: &'a str,
}

impl Reading<'_> {
    fn line(&self, at: usize) -> usize {
        1 + self.text[..at.min(self.text.len())].matches('\n').count()
    }

    fn wrong(&self, at: usize, why: &str) -> anyhow::Error {
        anyhow!("{}:{}: {why}", self.file.display(), self.line(at))
    }

    /// The options that the file gives a command. The whole file is checked, whichever command reads it.
    fn of(&self, path: &[&str]) -> Result<Vec<(String, Given)>> {
        let parsed = DeTable::parse(self.text);
        let table = parsed.map_err(|error| self.wrong(error.span().map_or(0, |span| span.start), error.message()))?;
        let mut given = Vec::new();
        self.table(table.get_ref(), &[], path, &mut given)?;
        // In the order of the command, as positional arguments require.
        let command = descend(self.cli, path).expect("the parser found it");
        let order: Vec<String> = options(command).map(key).collect();
        given.sort_by_key(|(name, _)| order.iter().position(|known| known == name));
        Ok(given)
    }

    fn table(&self, table: &DeTable, here: &[&str], wanted: &[&str], given: &mut Vec<(String, Given)>) -> Result<()> {
        for (key, value) in table {
            let (name, at) = (key.get_ref().as_ref(), key.span().start);
            if let DeValue::Table(inner) = value.get_ref() {
                let deeper = [here, &[name]].concat();
                if !COMMANDS.iter().any(|path| path.starts_with(&deeper) && descend(self.cli, path).is_some()) {
                    let known: Vec<String> = self.commands().map(|path| format!("[{}]", path.join("."))).collect();
                    return Err(
                        self.wrong(at, &format!("no command '{}'; there are {}", deeper.join("."), known.join(", ")))
                    );
                }
                self.table(inner, &deeper, wanted, given)?;
                continue;
            }
            // A renamed option is found by its old name.
            let name = &self.renamed(here, name).unwrap_or_else(|| name.to_owned());
            let known = self.known(here);
            if !known.iter().any(|known| known == name) {
                return Err(self.wrong(at, &format!("no option '{name}' here; there are {}", known.join(", "))));
            }
            let value = self.value(name, value)?;
            let applies = here == wanted
                || (here.is_empty()
                    && descend(self.cli, wanted).is_some_and(|command| option(command, name).is_some()));
            if applies {
                given.push((name.to_owned(), Given { value, line: self.line(at) }));
            }
        }
        Ok(())
    }

    fn commands(&self) -> impl Iterator<Item = &'static [&'static str]> {
        COMMANDS.iter().copied().filter(|path| descend(self.cli, path).is_some())
    }

    /// Keys that a table may have.
    fn known(&self, here: &[&str]) -> Vec<String> {
        if here.is_empty() {
            let everywhere: Vec<&Arg> =
                self.commands().filter_map(|path| descend(self.cli, path)).flat_map(options).collect();
            let known = SHARED.iter().filter(|name| everywhere.iter().any(|arg| key(arg) == **name));
            return known.map(|&name| name.to_owned()).collect();
        }
        let command = descend(self.cli, here).filter(|_| COMMANDS.contains(&here));
        command.map_or_else(Vec::new, |command| own(command).map(key).collect())
    }

    /// The present name of an option, given its old name.
    fn renamed(&self, here: &[&str], name: &str) -> Option<String> {
        let mut options = own(descend(self.cli, here)?);
        options.find(|arg| arg.get_all_aliases().is_some_and(|others| others.contains(&name))).map(key)
    }

    fn value(&self, name: &str, value: &Spanned<DeValue>) -> Result<Value> {
        match value.get_ref() {
            DeValue::String(text) => Ok(Value::Text(text.to_string())),
            DeValue::Integer(number) => Ok(Value::Text(number.to_string())),
            DeValue::Float(number) => Ok(Value::Text(number.to_string())),
            DeValue::Boolean(flag) => Ok(Value::Flag(*flag)),
            _ => Err(self.wrong(value.span().start, &format!("{name} must be a text, a number, true or false"))),
        }
    }
}

/// Options that belong in the command's own table.
fn own(command: &Command) -> impl Iterator<Item = &Arg> {
    options(command).filter(|arg| !SHARED.contains(&key(arg).as_str()))
}

/// A configuration with every option, its default written out.
pub fn printed(cli: &Command) -> String {
    let mut text = PREAMBLE.to_owned();
    let commands: Vec<(&[&str], &Command)> =
        COMMANDS.iter().filter_map(|path| Some((*path, descend(cli, path)?))).collect();
    for name in SHARED {
        if let Some(arg) = commands.iter().find_map(|(_, command)| option(command, name)) {
            describe(arg, &mut text);
        }
    }
    for (path, command) in commands {
        let mut options = own(command).peekable();
        if options.peek().is_some() {
            writeln!(text, "\n[{}]", path.join(".")).expect("text grows");
            options.for_each(|arg| describe(arg, &mut text));
        }
    }
    text
}

fn describe(arg: &Arg, text: &mut String) {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    text.push('\n');
    for line in help.lines() {
        writeln!(text, "# {line}").expect("text grows");
    }
    let possible: Vec<String> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let name = key(arg);
    if !possible.is_empty() && !matches!(arg.get_action(), ArgAction::SetTrue) {
        writeln!(text, "# One of {}", possible.join(", ")).expect("text grows");
    }
    let line = if matches!(arg.get_action(), ArgAction::SetTrue) {
        format!("{name} = false")
    } else if let Some(default) = arg.get_default_values().first() {
        let default = default.to_string_lossy();
        match default.parse::<i64>() {
            Ok(number) => format!("{name} = {number}"),
            Err(_) => format!("{name} = {}", toml::Value::String(default.into_owned())),
        }
    } else {
        let example = arg.get_value_names().and_then(|names| names.first()).map_or("VALUE", |name| name.as_str());
        format!("# {name} = \"{example}\"")
    };
    writeln!(text, "{line}").expect("text grows");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Cli;
    use clap::CommandFactory;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    /// The value of every option as text, as parsed from a command line.
    fn values(arguments: Vec<OsString>) -> Vec<(String, Vec<OsString>)> {
        let cli = with_option(Cli::command());
        let (_, matches) = chosen(&cli.try_get_matches_from(arguments).expect("a command line")).expect("a command");
        let ids = matches.ids().map(|id| id.as_str().to_owned());
        // Groups are left out.
        let ids = ids.filter(|id| !["config", "place", "which", "CacheArgs"].contains(&id.as_str()));
        let raw = |id: &str| matches.get_raw(id).map(|values| values.map(OsString::from).collect());
        let mut values: Vec<_> = ids.filter_map(|id| raw(&id).map(|values| (id, values))).collect();
        values.sort();
        values
    }

    #[test]
    fn the_manual_names_every_key_that_stands_at_the_top() {
        let manual = include_str!("../../../docs/OPERATING.md");
        let about =
            manual.split("at the top those that mean the same").nth(1).expect("the sentence on keys at the top");
        let about = about.split("in a command's table").next().expect("its end");
        let told: Vec<&str> = about.split('`').skip(1).step_by(2).collect();
        assert_eq!(told, SHARED);
    }

    #[test]
    fn what_is_printed_holds_the_defaults_that_the_code_has_and_every_option() {
        let cli = with_option(Cli::command());
        let text = printed(&cli);
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let file = scratch.path().join("entresol.toml");
        std::fs::write(&file, &text).expect("a file");
        let lines = [
            "entresol serve nbd --cache c --backing b --socket s",
            "entresol mount b m",
            "entresol format --cache c --backing b",
            "entresol check --cache c --backing b",
            "entresol stats --cache c",
        ];
        for line in lines {
            let with = words(&format!("{line} --config {}", file.display()));
            let (with, _) = extended(&cli, with).expect("a configuration");
            assert_eq!(values(with), values(words(line)), "{line}");
        }
        // With every example made a setting, every option is in the file, and the file is read.
        let every = text.lines().filter(|line| line.contains(" = ")).map(|line| line.trim_start_matches("# "));
        let every: Vec<&str> = every.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name).collect();
        for command in COMMANDS.iter().filter_map(|path| descend(&cli, path)) {
            options(command).for_each(|arg| assert!(every.contains(&key(arg).as_str()), "{}", key(arg)));
        }
    }

    #[test]
    fn what_an_earlier_release_printed_asks_for_nothing_without_a_cache() {
        let cli = with_option(Cli::command());
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let file = scratch.path().join("c.toml");
        std::fs::write(&file, "policy = 'face-gsc'\nmode = 'write-back'\n").expect("a file");
        let added = |line: &str| {
            let (words, _) = extended(&cli, words(&format!("{line} --config {}", file.display()))).expect("words");
            words.len() - line.split(' ').count() - 2
        };
        assert_eq!(added("entresol mount b m"), 0);
        assert_eq!(added("entresol mount b m --cache c"), 2, "with a cache they are what was told");
    }

    #[test]
    fn the_command_line_overrides_and_displaces() {
        let cli = with_option(Cli::command());
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let file = scratch.path().join("c.toml");
        let text = "cache = 'c'\nbacking = 'b'\nmode = 'writethrough'\npolicy = 'arc'\n[serve.nbd]\nsocket = 's'\n\
                    connections = 3\n[mount]\nmountpoint = 'm'\n[format]\nsize = '1MiB'";
        std::fs::write(&file, text).expect("a file");
        let extended = |line: &str| {
            let (words, _) = extended(&cli, words(&format!("{line} --config {}", file.display()))).expect("words");
            let added: Vec<String> = words.into_iter().map(|word| word.into_string().expect("text")).collect();
            added[line.split(' ').count() + 2..].join(" ")
        };
        let all = "--backing=b --cache=c --policy=arc --mode=writethrough --socket=s --max-connections=3";
        assert_eq!(extended("entresol serve nbd"), all);
        let tcp = "--backing=b --cache=c --mode=writethrough --max-connections=3";
        assert_eq!(extended("entresol serve nbd --policy lru --tcp 127.0.0.1:0"), tcp);
        assert_eq!(extended("entresol drain"), "--cache=c --backing=b");
        assert_eq!(extended("entresol stats --cache d"), "");
        assert!(extended("entresol mount").contains("b m"), "places in their order");
        assert_eq!(extended("entresol format"), "--cache=c --backing=b --size=1MiB --policy=arc --mode=writethrough");
    }
}
