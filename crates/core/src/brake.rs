//! A limit on what programs remove at once without a user's consent. Pure.
//!
//! Synchronisation removes Backups from the cluster, retention removes backups with their data. Both
//! stop at a share of what is there, and continue when a user agrees to the number that was shown
//! ([`crate::sync::Request`]).

/// Removals are free up to a number, and up to a share of what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brake {
    /// Maximum number of losses that need no consent, whatever their share.
    pub free: u64,
    /// Maximum share that is lost without consent (percent). 100 turns the brake off.
    pub percent: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrakeDecision {
    Free,
    NeedsConsent,
    /// A user has agreed to this number of removals, and there are more.
    BeyondConsent(u64),
}

impl Brake {
    /// Decides on `removals`, by which `lost` of `all` get lost. Consent to a number of removals
    /// replaces the limit.
    pub fn decide(self, removals: u64, lost: u64, all: u64, agreed: Option<u64>) -> BrakeDecision {
        let share = u128::from(lost) * 100;
        match agreed {
            Some(agreed) if removals > agreed => BrakeDecision::BeyondConsent(agreed),
            None if lost > self.free && share > u128::from(all) * u128::from(self.percent) => {
                BrakeDecision::NeedsConsent
            }
            _ => BrakeDecision::Free,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_and_a_number_must_both_be_exceeded() {
        let of = |free, percent| Brake { free, percent };
        let free = BrakeDecision::Free;
        let stops = BrakeDecision::NeedsConsent;
        for (brake, lost, all, agreed, expected) in [
            (of(5, 30), 5, 5, None, free),
            (of(5, 30), 6, 6, None, stops),
            (of(5, 30), 6, 20, None, free),
            (of(5, 30), 7, 20, None, stops),
            (of(5, 30), 0, 0, None, free),
            (of(1, 50), 1, 1, None, free),
            (of(1, 50), 2, 4, None, free),
            (of(1, 50), 2, 3, None, stops),
            (of(5, 100), 900, 900, None, free),
            (of(5, 0), 6, 900, None, stops),
            (of(5, 30), 6, 6, Some(6), free),
            (of(5, 30), 6, 6, Some(5), BrakeDecision::BeyondConsent(5)),
            // Consent to a number is consent to no more, even below the limit.
            (of(5, 30), 2, 900, Some(1), BrakeDecision::BeyondConsent(1)),
            (of(0, 100), u64::MAX, u64::MAX, None, free),
        ] {
            let decision = brake.decide(lost, lost, all, agreed);
            assert_eq!(decision, expected, "{brake:?} {lost} {all} {agreed:?}");
        }
    }
}
