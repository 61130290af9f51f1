//! scratch
use entresol_device::nand::{NandParameters, Ssd};
use entresol_device::profile;
use entresol_probe::{Findings, ModelTarget, Setup, experiments};

fn go(mut target: ModelTarget, bytes: u64, scale: f64) -> Findings {
    let setup = Setup::new(bytes).scaled(scale);
    let mut all = Findings::default();
    for e in experiments() {
        let t = std::time::Instant::now();
        let found = (e.run)(&mut target, &setup, 1).expect(e.name);
        println!("== {} {:?}", e.name, t.elapsed());
        for p in &found.fitted {
            println!("   {:40} {:12.4} {:12.4} {:12.4} {}", p.name, p.value, p.low, p.high, p.unit);
        }
        for n in &found.notes {
            println!("   NOTE {n}");
        }
        all.merge(found);
    }
    all
}

#[test]
fn p4800x() {
    let t = ModelTarget::of_profile(&profile::load("p4800x").unwrap(), 1 << 30, 1).unwrap();
    go(t, 1 << 30, 1.0);
}
#[test]
fn cheetah() {
    let p = profile::load("cheetah-15k5").unwrap();
    let t = ModelTarget::of_profile(&p, 0, 1).unwrap();
    let b = 286_749_487u64 * 512;
    go(t, b, 1.0);
}
#[test]
fn s840() {
    let p = NandParameters::s840_pro().scaled_to(2 << 30);
    go(ModelTarget::new("840", Box::new(Ssd::new(p).unwrap()), None), 2 << 30, 0.2);
}
#[test]
fn p3700() {
    let p = NandParameters::p3700().scaled_to(2 << 30);
    go(ModelTarget::new("p3700", Box::new(Ssd::new(p).unwrap()), None), 2 << 30, 0.2);
}
