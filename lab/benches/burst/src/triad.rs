//! The triad of STREAM: the program whose slowdown is measured.

use anyhow::Result;
use std::io::Write;
use std::time::Instant;

/// Runs so many triads as each line of standard input says, over three arrays of so many MiB, and prints the seconds.
pub fn triads(mib: usize) -> Result<()> {
    let length = (mib << 20) / size_of::<f64>();
    let (mut a, b, c) = (vec![1.0; length], vec![2.0; length], vec![0.5; length]);
    println!("ready");
    for line in std::io::stdin().lines() {
        let count: u32 = line?.trim().parse()?;
        let begin = Instant::now();
        for turn in 0..count {
            let s = f64::from(turn) + 3.0;
            for ((a, b), c) in a.iter_mut().zip(&b).zip(&c) {
                *a = *b + s * *c;
            }
            std::hint::black_box(&mut a);
        }
        println!("{}", begin.elapsed().as_secs_f64());
        std::io::stdout().flush()?;
    }
    Ok(())
}
