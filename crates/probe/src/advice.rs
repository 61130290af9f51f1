//! Recommendations for a cache on a device, derived from the device's findings.

use crate::findings::Findings;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A recommendation and its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// Topic of the recommendation.
    pub topic: Cow<'static, str>,
    /// Action to take.
    pub recommendation: String,
    /// Reason, in a sentence with the numbers.
    pub reason: String,
}

/// Intended use of the device, and the writes that it endures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    /// Mean rate of the cache's writes over its whole time, in 10^6 bytes a second; none where unknown.
    pub write_mb_s: Option<f64>,
    /// Endurance of the medium in bytes programmed; none where no source gives it. The figure is cycles times
    /// capacity, or the data sheet's total bytes written times its write amplification.
    pub endurance_bytes: Option<f64>,
}

/// Ratio of sequential to random write rate from which random writes should be avoided.
const LOG_PAYS: f64 = 1.5;

/// Recommendations, one for each topic whose parameters were measured. The same findings give the same advice.
pub fn advise(findings: &Findings, usage: Use) -> Vec<Advice> {
    let topics = [alignment, segment, depth, layout];
    topics.iter().filter_map(|topic| topic(findings)).chain(lifetime(findings, usage)).collect()
}

fn alignment(findings: &Findings) -> Option<Advice> {
    let page = findings.value("page_bytes")?;
    let topic = "alignment".into();
    let stays = findings.value("unaligned_penalty_us");
    let layered = findings.value("odd_penalty_us").zip(findings.value("layers_meet_kib"));
    let align = |page: f64| format!("align writes to {page:.0} B and write whole multiples of it");
    let (recommendation, reason) = match (stays, layered) {
        (Some(penalty), _) => {
            (align(page), format!("a write that ends within a page costs {penalty:.0} us more, whatever its size"))
        }
        (None, Some((penalty, meet))) => {
            let reason =
                format!("an unaligned small write costs up to {penalty:.1} us more; from {meet:.0} KiB on nothing");
            (align(page), reason)
        }
        (None, None) => {
            let reason = "no size of write costs more than its neighbours".to_owned();
            (format!("nothing needs more than the {page:.0} B that the device takes"), reason)
        }
    };
    Some(Advice { topic, recommendation, reason })
}

fn segment(findings: &Findings) -> Option<Advice> {
    let kib = findings.value("segment_kib")?;
    Some(Advice {
        topic: "segment size".into(),
        recommendation: format!("write segments of at least {kib:.0} KiB"),
        reason: format!("from {kib:.0} KiB on, one write at a time reaches 95 % of the bandwidth of the largest"),
    })
}

fn depth(findings: &Findings) -> Option<Advice> {
    let pages = findings.value("random_read_4k_saturation_depth")?;
    let large = findings.value("random_read_128k_saturation_depth")?;
    let iops = findings.value("random_read_4k_iops")?;
    Some(Advice {
        topic: "queue depth".into(),
        recommendation: format!("keep {pages:.0} reads of 4 KiB outstanding, {large:.0} of 128 KiB"),
        reason: format!("that gives 95 % of {iops:.0} reads a second; more only wait"),
    })
}

fn layout(findings: &Findings) -> Option<Advice> {
    let slowdown = findings.value("random_write_slowdown")?;
    let turns = findings.value("rotates") == Some(1.0);
    let pays = turns || slowdown > LOG_PAYS;
    let why = if turns {
        "each random write waits for the heads and the platter"
    } else if pays {
        "the device cleans behind random writes"
    } else {
        "the device does not mind where a page goes"
    };
    Some(Advice {
        topic: "layout".into(),
        recommendation: if pays { "lay pages out as a log" } else { "slots are fine: write a page where it is" }.into(),
        reason: format!("random page writes move {slowdown:.1} times fewer bytes a second than writes in order: {why}"),
    })
}

fn lifetime(findings: &Findings, usage: Use) -> Option<Advice> {
    const YEAR_S: f64 = 365.25 * 86_400.0;
    let (rate, endurance) = (usage.write_mb_s? * 1e6, usage.endurance_bytes?);
    if rate <= 0.0 || findings.value("rotates") == Some(1.0) {
        return None;
    }
    let slowdown = findings.value("random_write_slowdown")?;
    let years = |amplification: f64| endurance / (rate * amplification) / YEAR_S;
    Some(Advice {
        topic: "lifetime".into(),
        recommendation: format!("{:.1} years as a log, no less than {:.1} as slots", years(1.0), years(slowdown)),
        reason: format!(
            "{:.1} MB/s of writes against {:.0} TB of endurance; cleaning amplifies random writes at most as much as it slows them, {slowdown:.1} times",
            rate / 1e6,
            endurance / 1e12
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Parameter;

    fn findings(values: &[(&str, f64)]) -> Findings {
        let parameter = |&(name, value): &(&str, f64)| Parameter {
            name: name.into(),
            value,
            unit: String::new(),
            low: value,
            high: value,
            from: "test".into(),
        };
        Findings { fitted: values.iter().map(parameter).collect(), ..Findings::default() }
    }

    fn of<'a>(advice: &'a [Advice], topic: &str) -> &'a Advice {
        advice.iter().find(|advice| advice.topic == topic).expect(topic)
    }

    #[test]
    fn a_flash_drive_wants_pages_and_a_log() {
        let flash = findings(&[
            ("page_bytes", 4096.0),
            ("unaligned_penalty_us", 37.0),
            ("segment_kib", 256.0),
            ("random_read_4k_saturation_depth", 8.0),
            ("random_read_128k_saturation_depth", 4.0),
            ("random_read_4k_iops", 65_800.0),
            ("random_write_slowdown", 5.0),
            ("rotates", 0.0),
        ]);
        let usage = Use { write_mb_s: Some(10.0), endurance_bytes: Some(768e12) };
        let advice = advise(&flash, usage);
        assert_eq!(advice.len(), 5);
        assert!(of(&advice, "alignment").recommendation.contains("4096"));
        assert!(of(&advice, "segment size").recommendation.contains("256 KiB"));
        assert!(of(&advice, "queue depth").recommendation.contains("keep 8"));
        assert!(of(&advice, "layout").recommendation.contains("log"));
        // 768e12 B at 1e7 B/s: 7.68e7 s, 2.43 years.
        assert_eq!(of(&advice, "lifetime").recommendation, "2.4 years as a log, no less than 0.5 as slots");
    }

    #[test]
    fn a_device_without_cleaning_takes_slots_and_nothing_is_said_of_what_is_not_known() {
        let nvm = findings(&[("random_write_slowdown", 1.0), ("rotates", 0.0)]);
        let advice = advise(&nvm, Use::default());
        assert_eq!(advice.len(), 1);
        assert!(of(&advice, "layout").recommendation.contains("slots"));
        let disk = findings(&[("random_write_slowdown", 80.0), ("rotates", 1.0)]);
        let usage = Use { write_mb_s: Some(1.0), endurance_bytes: Some(1e15) };
        let advice = advise(&disk, usage);
        assert!(of(&advice, "layout").reason.contains("platter"));
        assert!(advice.iter().all(|advice| advice.topic != "lifetime"));
    }
}
