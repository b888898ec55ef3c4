//! Decides whether an Event is created, added to a series, or dropped. Pure; memory is bounded.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_operator_api::severity::Severity;

use super::Notice;

/// How long after its last occurrence a repeated Event still belongs to the series.
const SERIES_WINDOW: Duration = Duration::from_mins(6);

/// Most calls about one object within [`RATE_PERIOD`].
const MAX_CALLS: usize = 30;
const RATE_PERIOD: Duration = Duration::from_mins(1);

/// Most series, and most objects, that are remembered.
const MAX_ENTRIES: usize = 1024;

/// What to do with an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Create,
    Repeat { event: String, count: i32 },
    Drop,
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
    period_start: Duration,
    calls: usize,
}

#[derive(Debug, Default)]
pub(super) struct Aggregator {
    series: BTreeMap<SeriesId, Series>,
    rates: BTreeMap<ObjectId, Rate>,
}

impl Aggregator {
    /// Decides what to do with an Event at time `now`, and counts it.
    pub(super) fn classify(&mut self, notice: &Notice, now: Duration) -> Verdict {
        if !self.is_within_rate(notice, now) {
            return Verdict::Drop;
        }
        match self.series.get_mut(&series_id(notice)) {
            Some(series) if now.saturating_sub(series.last) <= SERIES_WINDOW => {
                series.count = series.count.saturating_add(1);
                series.last = now;
                Verdict::Repeat {
                    event: series.event.clone(),
                    count: series.count,
                }
            }
            _ => Verdict::Create,
        }
    }

    /// Records that an Event was created under the name `event`.
    pub(super) fn record_created(&mut self, notice: &Notice, event: String, now: Duration) {
        evict_oldest(&mut self.series, |series| series.last);
        self.series.insert(
            series_id(notice),
            Series {
                event,
                count: 1,
                last: now,
            },
        );
    }

    /// Counts an Event of an object; false for more than thirty a minute.
    fn is_within_rate(&mut self, notice: &Notice, now: Duration) -> bool {
        let id = object_id(notice);
        if !self.rates.contains_key(&id) {
            evict_oldest(&mut self.rates, |rate| rate.period_start);
        }
        let rate = self.rates.entry(id).or_insert(Rate {
            period_start: now,
            calls: 0,
        });
        if now.saturating_sub(rate.period_start) >= RATE_PERIOD {
            *rate = Rate {
                period_start: now,
                calls: 0,
            };
        }
        rate.calls += 1;
        rate.calls <= MAX_CALLS
    }
}

/// Removes the oldest entry of a full table.
fn evict_oldest<Id: Ord + Clone, T>(table: &mut BTreeMap<Id, T>, age: impl Fn(&T) -> Duration) {
    if table.len() >= MAX_ENTRIES
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
    fn an_event_repeated_after_the_window_is_new() {
        let mut aggregator = Aggregator::default();
        aggregator.record_created(&notice("a", "x"), "a.1".into(), s(0));
        let again = Verdict::Repeat {
            event: "a.1".into(),
            count: 2,
        };
        assert_eq!(aggregator.classify(&notice("a", "x"), s(300)), again);
        assert_eq!(aggregator.classify(&notice("a", "x"), s(661)), Verdict::Create);
        assert_eq!(
            aggregator.classify(&notice("a", "other"), s(661)),
            Verdict::Create
        );
    }

    #[test]
    fn the_rate_limit_resets_after_a_minute() {
        let mut aggregator = Aggregator::default();
        for n in 0..MAX_CALLS {
            assert_eq!(
                aggregator.classify(&notice("a", &n.to_string()), s(0)),
                Verdict::Create
            );
        }
        assert_eq!(aggregator.classify(&notice("a", "more"), s(59)), Verdict::Drop);
        assert_eq!(aggregator.classify(&notice("b", "more"), s(59)), Verdict::Create);
        assert_eq!(aggregator.classify(&notice("a", "more"), s(60)), Verdict::Create);
    }

    #[test]
    fn memory_is_bounded() {
        let mut aggregator = Aggregator::default();
        for n in 0..3 * MAX_ENTRIES {
            let notice = notice(&n.to_string(), "x");
            let now = s(n.try_into().unwrap());
            aggregator.classify(&notice, now);
            aggregator.record_created(&notice, n.to_string(), now);
        }
        assert_eq!(
            (aggregator.series.len(), aggregator.rates.len()),
            (MAX_ENTRIES, MAX_ENTRIES)
        );
    }
}
