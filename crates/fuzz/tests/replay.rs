//! Replays the corpus through every target, unchanged and changed: earlier findings stay covered on a compiler without
//! the fuzzer.

use entresol_core::Random;
use entresol_fuzz_targets::TARGETS;
use std::path::{Path, PathBuf};

/// Changed copies of each file, unless `ENTRESOL_FUZZ_COPIES` sets another number.
const COPIES: u64 = 300;
/// Longest input in bytes.
const BYTES_MAX: usize = 4096;

fn corpus(name: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// One to four changes, as a fuzzer without feedback makes them.
fn change(bytes: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        let end = (at + random.below(9) as usize).min(bytes.len());
        match random.below(6) {
            0 => drop(bytes.drain(at..end)),
            1 => bytes[at..end].fill([0, 0xFF, random.next_u64() as u8][random.below(3) as usize]),
            2 => drop(bytes.splice(at..at, random.next_u64().to_le_bytes())),
            3 => bytes.truncate(at),
            4 => {
                let other = &others[random.below(others.len() as u64) as usize];
                let from = random.below(other.len() as u64 + 1) as usize;
                drop(bytes.splice(at.., other[from..].iter().copied()));
            }
            _ => bytes[at..end].iter_mut().for_each(|byte| *byte ^= 1 << random.below(8)),
        }
    }
    bytes.truncate(BYTES_MAX);
}

#[test]
fn the_corpus_and_changed_copies_of_it_break_no_target() {
    let copies = std::env::var("ENTRESOL_FUZZ_COPIES").map_or(COPIES, |number| number.parse().expect("a number"));
    for (name, target) in TARGETS {
        let files = corpus(name);
        assert!(!files.is_empty(), "{name}: there is a corpus");
        let inputs: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).expect("a file")).collect();
        let mut runs = 0;
        for (file, input) in files.iter().zip(&inputs) {
            for copy in 0..=copies {
                let mut bytes = input.clone();
                let mut random = Random::new(copy);
                if copy > 0 {
                    change(&mut bytes, &inputs, &mut random);
                }
                let outcome = std::panic::catch_unwind(|| target(&bytes));
                assert!(outcome.is_ok(), "{name}: {}, copy {copy}: {bytes:?}", file.display());
                runs += 1;
            }
        }
        println!("{name}: {} files, {runs} runs", files.len());
    }
}
