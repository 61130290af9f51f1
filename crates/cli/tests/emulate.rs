//! `entresol emulate` by its command line.
#![cfg(target_os = "linux")]

mod common;

use common::{Scratch, says};

#[test]
fn a_device_is_never_faster_than_its_model_and_leaves_nothing() {
    let scratch = Scratch::new();
    for writes in ["0", "50"] {
        let arguments =
            ["-q", "emulate", "--model", "arulraj-hdd", "--depth", "1,4", "--count", "40", "--writes", writes];
        let text = scratch.ok(&[&arguments[..], &["--size", "64MiB"]].concat());
        let rows: Vec<Vec<f64>> = text
            .lines()
            .map(|line| line.split_whitespace().map(str::parse).collect::<Result<_, _>>())
            .filter_map(|row: Result<Vec<f64>, _>| row.ok().filter(|row| row.len() == 6))
            .collect();
        assert_eq!(rows.iter().map(|row| row[0]).collect::<Vec<_>>(), [1.0, 4.0], "{text}");
        for row in &rows {
            assert!(row[2] <= row[1] && row[3] <= 1.0, "{text}");
        }
        // At depth, I/Os that the model receives at once reach the real device one after the other and wait less.
        assert!(rows[0][5] >= rows[0][4], "{text}");
        says(&text, &["depth 1: 40 I/Os; given - asked: median", "depth 4: 40 I/Os"]);
        assert_eq!(scratch.names(), [] as [&str; 0]);
    }
}

#[test]
fn what_cannot_be_is_one_line() {
    let scratch = Scratch::new();
    let cases: [(&[&str], &[&str]); 6] = [
        (&["--model", "no-such"], &["no-such", "face-disk"]),
        (&["--model", "face-disk", "--size", "1TB"], &["holds", "1000000000000 B"]),
        (&["--model", "dram", "--dir", "absent"], &["absent", "No such file"]),
        (&["--model", "dram", "--size", "1KiB"], &["--bytes 4096", "1024 B"]),
        (&["--model", "dram", "--size", "5%"], &["number of bytes"]),
        (&["--model", "dram", "--depth", "0"], &["--depth", "0"]),
    ];
    for (arguments, expected) in cases {
        says(&scratch.refused(&[&["-q", "emulate"], arguments].concat()), expected);
    }
    assert_eq!(scratch.names(), [] as [&str; 0]);
}
