//! One timeline from what the cluster tells (events) and what the bed tells (its chronicle). Pure.

use jiff::Timestamp;
use serde_json::Value;

/// Both, by time; of one second the events come first, whose times have no fractions.
pub(super) fn merged(events: &Value, chronicle: &str) -> String {
    let events = events["items"].as_array().into_iter().flatten().filter_map(event);
    let mut entries: Vec<(Timestamp, String)> = events.chain(noted(chronicle)).collect();
    entries.sort_by_key(|(time, _)| *time);
    let lines = entries
        .into_iter()
        .map(|(time, what)| format!("{time:.3} {what}\n"));
    lines.collect()
}

/// When an event happened last, and what it says.
fn event(event: &Value) -> Option<(Timestamp, String)> {
    let time = [
        "/lastTimestamp",
        "/eventTime",
        "/firstTimestamp",
        "/metadata/creationTimestamp",
    ]
    .into_iter()
    .find_map(|place| event.pointer(place)?.as_str()?.parse().ok())?;
    let text = |place: &str| event.pointer(place).and_then(Value::as_str).unwrap_or_default();
    let times = match event["count"].as_u64() {
        Some(count) if count > 1 => format!(" ({count} times since {})", text("/firstTimestamp")),
        _ => String::new(),
    };
    let line = format!(
        "event: {}/{} in {}: {}: {}{times}",
        text("/involvedObject/kind").to_lowercase(),
        text("/involvedObject/name"),
        text("/metadata/namespace"),
        text("/reason"),
        text("/message").trim_end().replace('\n', "\n  "),
    );
    Some((time, line))
}

/// Notes of a chronicle; lines that begin with spaces belong to the one before.
fn noted(chronicle: &str) -> Vec<(Timestamp, String)> {
    let mut entries: Vec<(Timestamp, String)> = Vec::new();
    for line in chronicle.lines() {
        let parts = line.split_once(' ');
        match parts.and_then(|(time, what)| Some((time.parse().ok()?, what))) {
            Some((time, what)) => entries.push((time, what.to_owned())),
            None => {
                if let Some((_, last)) = entries.last_mut() {
                    last.push('\n');
                    last.push_str(line);
                }
            }
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_and_notes_are_told_in_the_order_in_which_they_happened() {
        let events = json!({ "items": [
            {
                "metadata": { "namespace": "a", "creationTimestamp": "2026-01-01T00:00:00Z" },
                "involvedObject": { "kind": "Pod", "name": "p" }, "reason": "BackOff", "message": "again",
                "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:03Z", "count": 4,
            },
            {
                "metadata": { "namespace": "a", "creationTimestamp": "2026-01-01T00:00:01Z" },
                "involvedObject": { "kind": "Pod", "name": "p" }, "reason": "Started", "message": "go",
                "lastTimestamp": null, "eventTime": "2026-01-01T00:00:01.000000Z",
            },
        ] });
        let chronicle =
            "2026-01-01T00:00:02.500Z fault: x\n  in two lines\n2026-01-01T00:00:00.100Z begins\n";
        assert_eq!(
            merged(&events, chronicle),
            "2026-01-01T00:00:00.100Z begins\n\
             2026-01-01T00:00:01.000Z event: pod/p in a: Started: go\n\
             2026-01-01T00:00:02.500Z fault: x\n  in two lines\n\
             2026-01-01T00:00:03.000Z event: pod/p in a: BackOff: again (4 times since 2026-01-01T00:00:00Z)\n"
        );
    }

    #[test]
    fn without_events_the_chronicle_stays_readable() {
        assert_eq!(
            merged(&Value::Null, "2026-01-01T00:00:00.100Z begins\n"),
            "2026-01-01T00:00:00.100Z begins\n"
        );
    }
}
