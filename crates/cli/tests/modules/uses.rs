//! Uses among the modules of a crate's root, read from its sources as the compiler resolves them: module by module from
//! `lib.rs` on, each path from the module that names it.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Modules of a crate's root, each with those that it uses.
pub type Uses = BTreeMap<String, BTreeSet<String>>;

/// The modules of a crate's root and the uses among them. A use of a name that the root imports is one of the module
/// that the name is from. `text` gives the contents of a file, where there is one.
pub fn uses(folder: &Path, text: &dyn Fn(&Path) -> Option<String>) -> Uses {
    let mut reader = Reader { text, modules: BTreeMap::new(), imports: Vec::new(), items: BTreeSet::new() };
    for root in ["lib.rs", "main.rs"] {
        if let Some(source) = text(&folder.join(root)) {
            let place = Place { children: folder.to_owned(), attributed: folder.to_owned() };
            reader.stream(tokens(&source, &folder.join(root)), &[], &place, true);
        }
    }
    reader.uses()
}

fn tokens(source: &str, path: &Path) -> TokenStream {
    source.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Folders in which the files of a module's own modules are.
struct Place {
    children: PathBuf,
    /// For a module with an attribute `path`.
    attributed: PathBuf,
}

/// The names that a module of the root and those inside it use and declare.
#[derive(Default)]
struct Names {
    /// Names from the root, and whether the path goes on behind each.
    used: BTreeSet<(String, bool)>,
    /// All words, each with true if it is followed by a path's step.
    words: BTreeSet<(String, bool)>,
    /// Words that are followed by an exclamation mark.
    called: BTreeSet<String>,
    /// True if `words` may be names in the root: all of these are imported, or a macro's argument comes after `crate::`.
    takes_all: bool,
    /// Macros that are declared.
    macros: BTreeSet<String>,
    /// True if its macros are known to all modules without a path.
    has_macros_for_all: bool,
}

/// A path with the name that it is imported by.
struct Written {
    words: Vec<String>,
    name: Option<String>,
}

struct Reader<'a> {
    text: &'a dyn Fn(&Path) -> Option<String>,
    modules: BTreeMap<String, Names>,
    /// Names that the root imports, each with the module or crate it is from; `*` for all of its names.
    imports: Vec<(String, String)>,
    /// Names that the root declares itself.
    items: BTreeSet<String>,
}

impl Reader<'_> {
    /// Reads the code of a module, of which `module` is the path from the root. `outermost` is false inside of brackets.
    fn stream(&mut self, stream: TokenStream, module: &[String], place: &Place, outermost: bool) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let (mut at, mut path, mut macro_use) = (0, None, false);
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                // The word after it is a lifetime.
                TokenTree::Punct(mark) if mark.as_char() == '\'' => at += 1,
                TokenTree::Punct(mark) if mark.as_char() == ';' => (path, macro_use) = (None, false),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
                TokenTree::Group(group) => {
                    // Of attributes those count that a module may have.
                    path = path_of(group).or(path);
                    macro_use |= word_at(&inside(group), 0).is_some_and(|word| word == "macro_use");
                    self.stream(group.stream(), module, place, false);
                }
                TokenTree::Ident(word) => {
                    let word = word.to_string();
                    match (word.as_str(), word_at(&tokens, at)) {
                        ("mod", Some(name)) => {
                            if module.is_empty() {
                                self.modules.entry(name.clone()).or_default().has_macros_for_all = macro_use;
                            }
                            self.module(name, tokens.get(at + 1), module, place, path.take());
                            (at, macro_use) = (at + 2, false);
                        }
                        ("use", _) => at = self.paths(&tokens, at, module, true),
                        ("crate" | "super" | "self", _) if is_step(&tokens, at) => {
                            at = self.paths(&tokens, at - 1, module, false);
                        }
                        _ => self.word(&word, &tokens, at, module, outermost),
                    }
                }
            }
        }
    }

    /// Reads a module in a module: `body` is its code in brackets, or a semicolon where it has a file.
    fn module(
        &mut self,
        name: String,
        body: Option<&TokenTree>,
        parent: &[String],
        place: &Place,
        path: Option<String>,
    ) {
        let module: Vec<String> = parent.iter().cloned().chain([name.clone()]).collect();
        let children = place.children.join(&name);
        if let Some(TokenTree::Group(code)) = body {
            let place = Place { attributed: children.clone(), children };
            return self.stream(code.stream(), &module, &place, true);
        }
        let beside = |file: &Path| file.parent().expect("a folder").to_owned();
        let files = match path {
            Some(path) => {
                let file = place.attributed.join(path);
                vec![(file.clone(), beside(&file))]
            }
            None => {
                vec![(place.children.join(format!("{name}.rs")), children.clone()), (children.join("mod.rs"), children)]
            }
        };
        let found = files.into_iter().find_map(|(file, children)| Some(((self.text)(&file)?, file, children)));
        let (source, file, children) = found.unwrap_or_else(|| panic!("no file of {}", module.join("::")));
        self.stream(tokens(&source, &file), &module, &Place { children, attributed: beside(&file) }, true);
    }

    /// Records the paths that begin at a position; returns the one after them.
    fn paths(&mut self, tokens: &[TokenTree], at: usize, module: &[String], imported: bool) -> usize {
        let mut written = Vec::new();
        let end = paths(tokens, at, &[], &mut written);
        for Written { words, name } in written {
            let Some(from_root) = resolved(&words, module) else { continue };
            let Some(own) = module.first() else {
                if let (true, Some(first), Some(last)) = (imported, from_root.first(), from_root.last()) {
                    self.imports.push((name.unwrap_or_else(|| last.clone()), first.clone()));
                }
                continue;
            };
            let names = self.modules.entry(own.clone()).or_default();
            match from_root.first() {
                Some(first) if first != "*" => drop(names.used.insert((first.clone(), from_root.len() > 1))),
                _ => names.takes_all = true,
            }
        }
        end
    }

    /// Records a word that begins no path from a module known by its place. `at` is the position after it.
    fn word(&mut self, word: &str, tokens: &[TokenTree], at: usize, module: &[String], outermost: bool) {
        const ITEMS: [&str; 8] = ["const", "enum", "fn", "static", "struct", "trait", "type", "union"];
        let is_call = is_mark(tokens, at, '!');
        let declared_macro = if word == "macro_rules" && is_call { word_at(tokens, at + 1) } else { None };
        match module.first() {
            None if outermost => {
                let item = if ITEMS.contains(&word) { word_at(tokens, at) } else { declared_macro };
                self.items.extend(item);
            }
            None => {}
            Some(own) => {
                let names = self.modules.entry(own.clone()).or_default();
                names.macros.extend(declared_macro);
                if is_call {
                    // A macro, whatever else has its name.
                    names.called.insert(word.to_owned());
                } else {
                    names.words.insert((word.to_owned(), is_step(tokens, at)));
                }
            }
        }
    }

    /// The modules from which a name in the root may be.
    fn owners(&self, name: &str, goes_on: bool) -> BTreeSet<String> {
        let imported: BTreeSet<String> = self.imported(name);
        if goes_on && self.modules.contains_key(name) {
            // A function of the same name leads no further.
            return [name.to_owned()].into();
        }
        if self.modules.contains_key(name) {
            return imported.into_iter().chain([name.to_owned()]).collect();
        }
        if !imported.is_empty() || self.items.contains(name) {
            return imported;
        }
        // A macro may have a path from the root, wherever it is declared.
        let declaring = self.modules.iter().filter(|(_, names)| names.macros.contains(name));
        declaring.map(|(module, _)| module.clone()).chain(self.imported("*")).collect()
    }

    fn imported(&self, name: &str) -> BTreeSet<String> {
        self.imports.iter().filter(|(import, _)| import == name).map(|(_, from)| from.clone()).collect()
    }

    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (module, names) in &self.modules {
            let mut used: BTreeSet<String> =
                names.used.iter().flat_map(|(name, goes_on)| self.owners(name, *goes_on)).collect();
            for name in names.called.difference(&names.macros) {
                let declaring = self.modules.iter().filter(|(_, other)| other.has_macros_for_all);
                used.extend(declaring.filter(|(_, other)| other.macros.contains(name)).map(|(other, _)| other.clone()));
            }
            if names.takes_all {
                let of_module = |(word, is_step): &&(String, bool)| *is_step && self.modules.contains_key(word);
                used.extend(names.words.iter().filter(of_module).map(|(word, _)| word.clone()));
                used.extend(names.words.iter().flat_map(|(word, _)| self.imported(word)));
                used.extend(self.imported("*"));
            }
            used.retain(|other| other != module && self.modules.contains_key(other));
            uses.insert(module.clone(), used);
        }
        uses
    }
}

/// Adds the paths that begin at a position, each after the words of `before`, which they have in common. Returns the
/// position after them.
fn paths(tokens: &[TokenTree], mut at: usize, before: &[String], found: &mut Vec<Written>) -> usize {
    let mut words = before.to_vec();
    loop {
        if is_step(tokens, at) {
            at += 2;
        }
        match tokens.get(at) {
            Some(TokenTree::Ident(word)) => {
                words.push(word.to_string());
                at += 1;
                if is_step(tokens, at) {
                    continue;
                }
                let name = if tokens.get(at).is_some_and(|token| is_word(token, "as")) {
                    word_at(tokens, at + 1)
                } else {
                    None
                };
                at += if name.is_some() { 2 } else { 0 };
                found.push(Written { words, name });
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let list = inside(group);
                let mut next = 0;
                while next < list.len() {
                    // Past the comma, or what is no path.
                    next = paths(&list, next, &words, found) + 1;
                }
                at += 1;
            }
            Some(TokenTree::Punct(mark)) if mark.as_char() == '*' => {
                words.push("*".to_owned());
                found.push(Written { words, name: None });
                at += 1;
            }
            // Arguments of a type, or of a macro.
            _ => found.push(Written { words, name: None }),
        }
        return at;
    }
}

/// The path from the root that a path in a module means; none where it leads into another crate or into the module.
fn resolved(words: &[String], module: &[String]) -> Option<Vec<String>> {
    let (base, rest) = match words.first().map(String::as_str) {
        Some("crate") => (&[][..], &words[1..]),
        Some("self") => (module, &words[1..]),
        Some("super") => {
            let steps = words.iter().take_while(|word| *word == "super").count();
            (&module[..module.len().checked_sub(steps)?], &words[steps..])
        }
        _ if module.is_empty() => (module, words),
        _ => return None,
    };
    let rest = rest.strip_suffix(&["self".to_owned()]).unwrap_or(rest);
    Some(base.iter().chain(rest).cloned().collect())
}

fn inside(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

fn word_at(tokens: &[TokenTree], at: usize) -> Option<String> {
    match tokens.get(at) {
        Some(TokenTree::Ident(word)) => Some(word.to_string()),
        _ => None,
    }
}

fn is_mark(tokens: &[TokenTree], at: usize, mark: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

/// True if `::` is at this position.
fn is_step(tokens: &[TokenTree], at: usize) -> bool {
    is_mark(tokens, at, ':') && is_mark(tokens, at + 1, ':')
}

/// The path in an attribute `#[path = "..."]`.
fn path_of(group: &Group) -> Option<String> {
    match inside(group).as_slice() {
        [TokenTree::Ident(word), TokenTree::Punct(_), TokenTree::Literal(text)] if word == "path" => {
            Some(text.to_string().trim_matches('"').to_owned())
        }
        _ => None,
    }
}
