//! Turns the features `loom` and `shuttle` into the cfg names by which such builds are known. As features they concern
//! this package alone: with `RUSTFLAGS` every dependency would be built once more.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for model in ["loom", "shuttle"] {
        if std::env::var_os(format!("CARGO_FEATURE_{}", model.to_uppercase())).is_some() {
            println!("cargo::rustc-cfg={model}");
        }
    }
}
