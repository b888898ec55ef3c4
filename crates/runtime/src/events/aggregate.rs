//! Which events are new, which are one more of a series, and which are too many. Pure; memory is bounded.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Notice, Severity};

/// How long after it was last said a repeated event still counts as the same.
const WINDOW: Duration = Duration::from_mins(6);

/// Most calls about one object within [`PER`].
const RATE: usize = 30;
const PER: Duration = Duration::from_mins(1);

/// Most series and most objects remembered.
const MEMORY: usize = 1024;

/// What to do with a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    New,
    Again { event: String, count: i32 },
    TooMany,
}

type ObjectId = (String, String, String);
type SeriesId = (ObjectId, Severity, &'static str, &'static str, String);

#[derive(Debug)]
struct Series {
    event: String,
    count: i32,
    last: Duration,
}

#[derive(Debug)]
struct Rate {
    since: Duration,
    calls: usize,
}

#[derive(Debug, Default)]
pub(super) struct Aggregator {
    series: BTreeMap<SeriesId, Series>,
    rates: BTreeMap<ObjectId, Rate>,
}

impl Aggregator {
    /// What to do with this notice now; counts it.
    pub(super) fn judge(&mut self, notice: &Notice, now: Duration) -> Verdict {
        if !self.within_rate(notice, now) {
            return Verdict::TooMany;
        }
        match self.series.get_mut(&series_id(notice)) {
            Some(series) if now.saturating_sub(series.last) <= WINDOW => {
                series.count = series.count.saturating_add(1);
                series.last = now;
                Verdict::Again {
                    event: series.event.clone(),
                    count: series.count,
                }
            }
            _ => Verdict::New,
        }
    }

    /// A new event was stored under this name.
    pub(super) fn sent(&mut self, notice: &Notice, event: String, now: Duration) {
        make_room(&mut self.series, |series| series.last);
        self.series.insert(
            series_id(notice),
            Series {
                event,
                count: 1,
                last: now,
            },
        );
    }

    fn within_rate(&mut self, notice: &Notice, now: Duration) -> bool {
        let id = object_id(notice);
        if !self.rates.contains_key(&id) {
            make_room(&mut self.rates, |rate| rate.since);
        }
        let rate = self.rates.entry(id).or_insert(Rate { since: now, calls: 0 });
        if now.saturating_sub(rate.since) >= PER {
            *rate = Rate { since: now, calls: 0 };
        }
        rate.calls += 1;
        rate.calls <= RATE
    }
}

/// Forgets the oldest entry of a full table.
fn make_room<Id: Ord + Clone, T>(table: &mut BTreeMap<Id, T>, age: impl Fn(&T) -> Duration) {
    if table.len() >= MEMORY
        && let Some(oldest) = table
            .iter()
            .min_by_key(|(_, entry)| age(entry))
            .map(|(id, _)| id.clone())
    {
        table.remove(&oldest);
    }
}

fn object_id(notice: &Notice) -> ObjectId {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let object = &notice.regarding;
    (part(&object.namespace), part(&object.name), part(&object.uid))
}

fn series_id(notice: &Notice) -> SeriesId {
    (
        object_id(notice),
        notice.severity,
        notice.reason,
        notice.action,
        notice.note.clone(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ObjectReference;

    fn notice(name: &str, note: &str) -> Notice {
        Notice {
            regarding: ObjectReference {
                name: Some(name.into()),
                ..ObjectReference::default()
            },
            severity: Severity::Warning,
            reason: "R",
            action: "A",
            note: note.into(),
        }
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_event_said_again_much_later_is_new() {
        let mut aggregator = Aggregator::default();
        aggregator.sent(&notice("a", "x"), "a.1".into(), s(0));
        let again = Verdict::Again {
            event: "a.1".into(),
            count: 2,
        };
        assert_eq!(aggregator.judge(&notice("a", "x"), s(300)), again);
        assert_eq!(aggregator.judge(&notice("a", "x"), s(661)), Verdict::New);
        assert_eq!(aggregator.judge(&notice("a", "other"), s(661)), Verdict::New);
    }

    #[test]
    fn an_object_may_speak_again_after_a_minute() {
        let mut aggregator = Aggregator::default();
        for n in 0..RATE {
            assert_eq!(aggregator.judge(&notice("a", &n.to_string()), s(0)), Verdict::New);
        }
        assert_eq!(aggregator.judge(&notice("a", "more"), s(59)), Verdict::TooMany);
        assert_eq!(aggregator.judge(&notice("b", "more"), s(59)), Verdict::New);
        assert_eq!(aggregator.judge(&notice("a", "more"), s(60)), Verdict::New);
    }

    #[test]
    fn memory_is_bounded() {
        let mut aggregator = Aggregator::default();
        for n in 0..3 * MEMORY {
            let notice = notice(&n.to_string(), "x");
            let now = s(n.try_into().unwrap());
            aggregator.judge(&notice, now);
            aggregator.sent(&notice, n.to_string(), now);
        }
        assert_eq!(
            (aggregator.series.len(), aggregator.rates.len()),
            (MEMORY, MEMORY)
        );
    }
}
