//! When a permit was laid with a pod, so that one that a node has missed is laid there again.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;

/// When a permit was last written into its pod's annotation, and how often before. It is written again if the pod does
/// not use it: the kubelet may miss a change while it updates the file in the pod, and looks again only after a minute
/// or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitDelivery {
    /// The last time.
    pub at: Timestamp,
    /// How often before.
    pub redeliveries: u32,
}

/// How long a permit lies there before it is laid there again for the first time; each time it is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(4);
/// How often it is laid there again.
const MAX_REDELIVERIES: u32 = 5;

impl PermitDelivery {
    /// The first time that a permit is written.
    pub fn first(at: Timestamp) -> Self {
        Self { at, redeliveries: 0 }
    }

    /// The permit is written once more.
    #[must_use]
    pub fn repeat(self, at: Timestamp) -> Self {
        Self {
            at,
            redeliveries: self.redeliveries.saturating_add(1),
        }
    }

    /// Whether a permit that is still unused is to be written again: after 4 seconds, then after twice as long each
    /// time, five times in all.
    pub fn needs_redelivery(self, now: Timestamp) -> bool {
        let wait = FIRST_WAIT * 2_u32.saturating_pow(self.redeliveries.min(MAX_REDELIVERIES));
        let waited = Duration::try_from(now.duration_since(self.at)).unwrap_or_default();
        self.redeliveries < MAX_REDELIVERIES && waited >= wait
    }
}

impl fmt::Display for PermitDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.at, self.redeliveries)
    }
}

impl FromStr for PermitDelivery {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (at, redeliveries) = text.split_once(' ').ok_or(())?;
        Ok(Self {
            at: at.parse().map_err(drop)?,
            redeliveries: redeliveries.parse().map_err(drop)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_takes_is_laid_there_again_a_few_times_and_ever_later() {
        let start: Timestamp = "2026-03-01T03:00:00Z".parse().expect("a time");
        let mut permit_delivery = PermitDelivery::first(start);
        let mut missed = Vec::new();
        for second in 0..1_000 {
            let now = start + Duration::from_secs(second);
            if permit_delivery.needs_redelivery(now) {
                missed.push(second);
                permit_delivery = permit_delivery.repeat(now);
            }
        }
        assert_eq!(missed, [4, 12, 28, 60, 124]);
        assert_eq!(permit_delivery.to_string().parse(), Ok(permit_delivery));
        assert_eq!("yesterday".parse::<PermitDelivery>(), Err(()));
    }
}
