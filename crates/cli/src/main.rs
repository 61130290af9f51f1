//! The program `entresol`.

use std::process::ExitCode;

fn main() -> ExitCode {
    entresol_cli::main()
}
