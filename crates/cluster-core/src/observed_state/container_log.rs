//! What a container said as it ended, for people: of the many lines of a dying etcd the one that tells why. Pure.

use serde_json::Value;

/// No more than this of it is shown.
const MAX_CHARS: usize = 300;

/// The line that tells most: the last one of the gravest level, as a sentence of at most 300 characters. Empty without
/// any. What Kubernetes keeps begins in the middle of a line.
pub fn most_telling_line(words: &str) -> String {
    let lines = words.lines().filter(|line| !line.trim().is_empty());
    let chosen = lines.max_by_key(|line| severity(line)).unwrap_or_default();
    if is_stack_frame(chosen) {
        return "it panicked, and `kubectl logs --previous` of its pod says why".to_owned();
    }
    let chosen = to_sentence(chosen);
    match chosen.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{} …", &chosen[..end]),
        None => chosen,
    }
}

/// Whether this is where a Go program was when it panicked: what it panicked of was said before, and not kept.
fn is_stack_frame(line: &str) -> bool {
    let place = line.trim_start().split_once(".go:").map(|(_, place)| place);
    place.is_some_and(|place| place.contains(" +0x")) || line.starts_with("created by ")
}

/// The gravest kind of line.
const FATAL: u8 = 4;

/// The lines in which a program says why it ends. What clients write is in lines of lower levels: a warning about a
/// slow request shows its keys.
pub fn fatal_lines(words: &str) -> impl Iterator<Item = &str> {
    words
        .lines()
        .filter(|line| severity(line) == FATAL || is_end_of_fatal_line(line))
}

/// Whether this is the end of a line whose beginning was not kept, and that only a line of an error can have. A
/// client's text in such a line has no bare quotes.
fn is_end_of_fatal_line(line: &str) -> bool {
    !line.starts_with('{') && line.contains("\",\"stacktrace\":\"") && line.ends_with('}')
}

/// Whether a line of older versions is of this level: `DATE TIME L | package: message`.
fn has_level(line: &str, level: &str) -> bool {
    line.split_once(" | ")
        .is_some_and(|(head, _)| head.ends_with(level))
}

/// The level of a line as a number, 0 to 4. The rest of a line whose beginning was not kept has 0.
fn severity(line: &str) -> u8 {
    let level = match serde_json::from_str::<Value>(line) {
        Ok(line) => line["level"].as_str().unwrap_or_default().to_owned(),
        Err(_) if line.starts_with("panic: ") || has_level(line, " C") || line.starts_with("Error: ") => {
            "fatal".to_owned()
        }
        // All about how etcd is called follows after it.
        Err(_) if line.starts_with("flag provided but not defined") || line.contains(" for flag -") => {
            "fatal".to_owned()
        }
        Err(_) if has_level(line, " E") => "error".to_owned(),
        Err(_) if line.contains("\",\"") => return 0,
        Err(_) => String::new(),
    };
    match level.as_str() {
        "fatal" | "panic" | "dpanic" => FATAL,
        "error" => 3,
        "warn" => 2,
        _ => 1,
    }
}

/// The message and the error of a JSON line; any other line as it is.
fn to_sentence(line: &str) -> String {
    let Ok(parsed) = serde_json::from_str::<Value>(line) else {
        return line.trim().to_owned();
    };
    let text = |key: &str| parsed[key].as_str().map(str::to_owned);
    match (text("msg"), text("error")) {
        (Some(message), Some(error)) => format!("{message}: {error}"),
        (Some(message), None) => message,
        _ => line.trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gravest_line_is_shown_and_not_the_noise_after_it() {
        let words = concat!(
            "\",\"msg\":\"stopping remote peer\",\"remote-peer-id\":\"97\"}\n",
            "{\"level\":\"warn\",\"msg\":\"slow\"}\n",
            "{\"level\":\"error\",\"msg\":\"serving failed\",\"error\":\"server is stopping\"}\n",
            "{\"level\":\"info\",\"msg\":\"stopped remote peer\"}\n\n",
        );
        assert_eq!(most_telling_line(words), "serving failed: server is stopping");
    }

    #[test]
    fn logs_of_older_versions_and_plain_words_are_read_too() {
        let words = "2026-01-01 I | raft: x\n2026-01-01 C | etcdserver: open wal error: wal: crc mismatch\n2026-01-01 I | y\n";
        assert_eq!(
            most_telling_line(words),
            "2026-01-01 C | etcdserver: open wal error: wal: crc mismatch"
        );
        assert_eq!(most_telling_line("no such file"), "no such file");
        assert_eq!(
            most_telling_line("Error: the volume is not there\n\nCaused by:\n  x\n"),
            "Error: the volume is not there"
        );
        assert_eq!(most_telling_line(""), "");
    }

    #[test]
    fn of_a_panic_the_reason_is_shown_or_where_it_stands() {
        let stack = "goroutine 1 [running]:\ngo.etcd.io/etcd/pkg/v3/schedule.job.Do()\n\tgo.etcd.io/etcd/pkg/v3@v3.7.3/schedule/schedule.go:101 +0x16f\n";
        let all = format!("panic: unmarshal should never fail\n\n{stack}");
        assert_eq!(most_telling_line(&all), "panic: unmarshal should never fail");
        assert_eq!(
            most_telling_line(stack),
            "it panicked, and `kubectl logs --previous` of its pod says why"
        );
    }

    #[test]
    fn of_a_flag_that_etcd_does_not_know_more_is_told_than_how_to_call_it() {
        let words =
            "flag provided but not defined: -no-such\nUsage:\n\n  etcd [flags]\n    Start an etcd server.\n";
        assert_eq!(
            most_telling_line(words),
            "flag provided but not defined: -no-such"
        );
    }

    #[test]
    fn what_clients_write_is_no_last_word() {
        let count = |words: &str| fatal_lines(words).count();
        let slow = concat!(
            "{\"level\":\"warn\",\"msg\":\"apply request took too long\",\"request\":\"key:\\\"checksum error\\\"\"}\n",
            "2026-01-01 00:00:00.0 W | etcdserver: request \"key:\\\"a C | checksum error\\\"\" took too long\n",
            "t\",\"request\":\"key:\\\"\\\",\\\"stacktrace\\\":\\\"checksum error\\\"\",\"took\":\"1s\"}\n",
        );
        assert_eq!(count(slow), 0);
        let dying = concat!(
            "{\"level\":\"fatal\",\"msg\":\"failed to read WAL\",\"error\":\"wal: crc mismatch\"}\n",
            "2026-01-01 00:00:00.0 C | etcdserver: wal: crc mismatch\n",
            "panic: page 3 already freed\n",
            "base\",\"error\":\"invalid database\",\"stacktrace\":\"go.etcd.io/etcd\\n\\tmain.go\"}\n",
        );
        assert_eq!(count(dying), 4);
    }

    #[test]
    fn nobody_reads_pages() {
        assert_eq!(
            most_telling_line(&"é".repeat(5_000)),
            format!("{} …", "é".repeat(MAX_CHARS))
        );
    }
}
