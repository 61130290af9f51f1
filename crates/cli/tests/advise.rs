//! `entresol advise placement`.

mod common;

use common::Scratch;
use serde_json::Value;

const TRACE: &str = "generate:olap:n=20k:pages=4k:seed=5";

fn advice(scratch: &Scratch, more: &[&str]) -> (String, Value) {
    let text = scratch.ok(&[&["-q", "advise", "placement", TRACE, "--json", "advice.json"], more].concat());
    (text, serde_json::from_str(&scratch.read("advice.json")).expect("json"))
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}

#[test]
fn the_advice_adds_up_and_is_compared_with_caches() {
    let scratch = Scratch::new();
    let (text, advice) = advice(&scratch, &["--budget", "800p"]);
    let objects = advice["objects"].as_array().expect("objects");
    let placement = &advice["placement"];
    let placed: Vec<bool> =
        placement["placed"].as_array().expect("flags").iter().map(|flag| flag == &Value::Bool(true)).collect();
    assert!(placed.contains(&true) && placed.contains(&false), "{placement}");
    let sum = |of: &dyn Fn(&Value, bool) -> u64| objects.iter().zip(&placed).map(|(o, &p)| of(o, p)).sum::<u64>();
    let pages = sum(&|object, placed| if placed { number(object, "pages") } else { 0 });
    assert!(pages == number(placement, "pages") && pages <= 800, "{placement}");
    let below = sum(&|object, placed| {
        let fields: &[&str] =
            if placed { &["pages", "written_pages"] } else { &["random_reads", "sequential_reads", "writes"] };
        fields.iter().map(|field| number(object, field)).sum()
    });
    assert_eq!(below, number(placement, "pages_below"), "{placement}");
    assert_eq!(placement["exact"], Value::Bool(true));
    assert_eq!(number(placement, "requests"), 20_000);
    assert!(text.contains("no choice saves more") && text.contains("this placement"), "{text}");
    let policies = advice["policies"].as_array().expect("policies");
    assert_eq!(policies.len(), 9);
    for policy in policies {
        assert!(text.contains(policy["policy"].as_str().expect("a name")), "{policy} in {text}");
    }
}

#[test]
fn with_devices_their_times_count() {
    let scratch = Scratch::new();
    let devices = ["--budget", "50%", "--fast", "p4800x", "--below", "cheetah-15k5", "--policy", "lru"];
    let (text, advice) = advice(&scratch, &devices);
    let cost = |device: &str, what: &str| advice["costs_us"][device][what].as_f64().expect("a cost");
    assert!(cost("below", "random_read") > 10.0 * cost("fast", "random_read"), "{}", advice["costs_us"]);
    assert!(advice["placement"]["saved_together"].as_f64().expect("microseconds") > 0.0);
    assert!(text.contains(" s"), "{text}");
}

#[test]
fn what_cannot_be_advised_on_is_refused() {
    let scratch = Scratch::new();
    let refused = |more: &[&str]| scratch.refused(&[&["advise", "placement", TRACE], more].concat());
    assert!(refused(&["--budget", "0p"]).contains("is no page"));
    assert!(refused(&[]).contains("--budget"));
    assert!(refused(&["--budget", "5%", "--fast", "p4800x"]).contains("--below"));
    assert!(refused(&["--budget", "5%", "--fast", "floppy", "--below", "p4800x"]).contains("floppy"));
    assert!(refused(&["--budget", "5%", "--policy", "nothing"]).contains("nothing"));
}
