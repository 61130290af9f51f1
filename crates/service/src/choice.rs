//! Figures of a policy that lets one of several candidate policies decide: for `stats`, `top`, the metrics and the log.

use entresol_policy::{Choice, Switch};
use entresol_render::{grouped, percent};
use serde::{Deserialize, Serialize};

/// Candidates, and the reason for the last switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChoiceFigures {
    /// Candidate policies.
    pub candidates: Vec<CandidateFigures>,
    /// Name of the candidate that decides.
    pub active: String,
    /// Sampled requests behind the figures, with older ones counting less.
    pub sampled_requests: u64,
    /// Switches from one candidate to another since the open.
    pub switches: u64,
    /// The last switch, in words.
    pub last_switch: Option<String>,
}

/// A candidate policy as simulated over sampled requests; without figures before the first of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CandidateFigures {
    /// Name of the policy.
    pub name: String,
    /// Hits by sampled requests.
    pub hit_ratio: Option<f64>,
    /// Predicted cost of a request. The unit is a read of the backing store, unless the policy's weights differ.
    pub cost: Option<f64>,
}

impl From<Choice> for ChoiceFigures {
    fn from(choice: Choice) -> Self {
        let known = |value: f64| Some(value).filter(|value| value.is_finite());
        let active = choice.candidates[choice.active].name.to_owned();
        let candidates = choice.candidates.iter().map(|candidate| CandidateFigures {
            name: candidate.name.to_owned(),
            hit_ratio: known(candidate.hit_ratio),
            cost: known(candidate.cost),
        });
        ChoiceFigures {
            candidates: candidates.collect(),
            active,
            sampled_requests: choice.sampled as u64,
            switches: choice.switches,
            last_switch: choice.last.as_ref().map(why),
        }
    }
}

impl ChoiceFigures {
    /// The candidate that decides, and the number of switches.
    pub fn state(&self) -> String {
        let sampled = grouped(self.sampled_requests.into());
        let switches = match self.switches {
            1 => "1 switch".to_owned(),
            more => format!("{} switches", grouped(more.into())),
        };
        format!("{} decides; {switches}; {sampled} sampled requests", self.active)
    }
}

impl CandidateFigures {
    /// Hit ratio and cost of the candidate.
    pub fn figures(&self) -> String {
        let hits = self.hit_ratio.map_or_else(|| "-".to_owned(), |ratio| percent(ratio, 2));
        let cost = self.cost.map_or_else(|| "-".to_owned(), |cost| format!("{cost:.4}"));
        format!("hit ratio {hits}, cost {cost}")
    }
}

/// The reason for a switch, in words.
pub(crate) fn why(switch: &Switch) -> String {
    let Switch { from, to, cost_from, cost_to, error, sampled, .. } = switch;
    let sampled = grouped((*sampled).into());
    format!(
        "switched from {from} to {to}: predicted cost {cost_to:.4} per request instead of {cost_from:.4}, standard error of the \
         difference {error:.4}, over {sampled} sampled requests"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_policy::ChoiceCandidate;

    #[test]
    fn a_choice_is_told_in_words_and_survives_json() {
        let last = Switch {
            from: "lru",
            to: "arc",
            cost_from: 0.5,
            cost_to: 0.25,
            error: 0.0125,
            sampled: 2000,
            requests: 123_456,
        };
        let candidate = |name, hit_ratio, cost| ChoiceCandidate { name, hit_ratio, cost };
        let candidates = vec![candidate("lru", 0.5, 0.5), candidate("arc", 0.75, 0.25)];
        let choice = Choice { candidates, active: 1, sampled: 1000.4, switches: 1, last: Some(last) };
        let figures = ChoiceFigures::from(choice.clone());
        assert_eq!(figures.state(), format!("arc decides; 1 switch; {} sampled requests", grouped(1000)));
        assert_eq!(figures.candidates[1].figures(), "hit ratio 75.00%, cost 0.2500");
        let expected = format!(
            "switched from lru to arc: predicted cost 0.2500 per request instead of 0.5000, standard error of the difference \
             0.0125, over {} sampled requests",
            grouped(2000)
        );
        assert_eq!(figures.last_switch, Some(expected));
        let json = serde_json::to_string(&figures).expect("JSON");
        assert_eq!(serde_json::from_str::<ChoiceFigures>(&json).expect("figures"), figures);
        // Before the first request no figure is a number.
        let candidates = vec![candidate("lru", f64::NAN, f64::NAN), candidate("arc", f64::NAN, f64::NAN)];
        let empty = ChoiceFigures::from(Choice { candidates, active: 0, sampled: 0.0, switches: 0, last: None });
        let json = serde_json::to_string(&empty).expect("JSON");
        assert_eq!(serde_json::from_str::<ChoiceFigures>(&json).expect("figures"), empty);
        assert_eq!(empty.candidates[0].figures(), "hit ratio -, cost -");
    }
}
