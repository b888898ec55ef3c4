//! The metrics `process_*` that Prometheus clients have in common, read from `/proc` at every scrape.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// The metrics about this process. Where `/proc` does not say a value, its metric is absent.
#[derive(Debug)]
pub(super) struct ProcessMetrics;

/// What `/proc/self/stat` says, in its units.
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat {
    cpu_ticks: u64,
    threads: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl ProcessStat {
    /// Parses `/proc/self/stat`. Without it the metrics of CPU, memory, threads and start time are absent.
    fn parse(text: &str) -> Option<Self> {
        // The second field, the name of the program in parentheses, may contain spaces. The third has the number 3.
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: number(14)?.saturating_add(number(15)?),
            threads: number(20)?,
            start_ticks: number(22)?,
            virtual_bytes: number(23)?,
            resident_pages: number(24)?,
        })
    }
}

/// The boot time in `/proc/stat`, in seconds.
fn parse_boot_time(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

#[expect(clippy::cast_precision_loss, reason = "ticks since the boot are below 2^53")]
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / clock_ticks_per_second() as f64
}

#[expect(clippy::cast_precision_loss, reason = "seconds and bytes are below 2^53")]
fn number(value: u64) -> f64 {
    value as f64
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stat = fs::read_to_string("/proc/self/stat").ok();
        let stat = stat.and_then(|text| ProcessStat::parse(&text));
        let boot_time = fs::read_to_string("/proc/stat").ok();
        let boot_time = boot_time.and_then(|text| parse_boot_time(&text));
        // Reading the directory opens a descriptor of its own.
        let open_fds = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let open_fds = u64::try_from(open_fds.saturating_sub(1))
            .ok()
            .filter(|fds| *fds > 0);
        if let Some(stat) = &stat {
            let cpu = ConstCounter::new(seconds(stat.cpu_ticks));
            let help = "User and system CPU time of the process";
            let family = encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?;
            cpu.encode(family)?;
        }
        let stat = stat.as_ref();
        let page_size = u64::try_from(page_size()).unwrap_or_default();
        let gauges = [
            (
                "process_start_time_seconds",
                "When the process started, as a Unix timestamp",
                stat.zip(boot_time)
                    .map(|(stat, boot_time)| number(boot_time) + seconds(stat.start_ticks)),
            ),
            (
                "process_resident_memory_bytes",
                "Resident memory of the process",
                stat.map(|stat| number(stat.resident_pages.saturating_mul(page_size))),
            ),
            (
                "process_virtual_memory_bytes",
                "Virtual memory of the process",
                stat.map(|stat| number(stat.virtual_bytes)),
            ),
            (
                "process_threads",
                "Threads of the process",
                stat.map(|stat| number(stat.threads)),
            ),
            (
                "process_open_fds",
                "Open file descriptors of the process",
                open_fds.map(number),
            ),
            (
                "process_max_fds",
                "Limit of open file descriptors of the process",
                getrlimit(Resource::Nofile).current.map(number),
            ),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                let gauge = ConstGauge::new(value);
                gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stat_of_a_process_is_read_behind_a_name_with_spaces() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194560 2 0 0 0 31 12 0 0 20 0 5 0 9000 1234944 55 184467";
        let stat = ProcessStat {
            cpu_ticks: 43,
            threads: 5,
            start_ticks: 9000,
            virtual_bytes: 1_234_944,
            resident_pages: 55,
        };
        assert_eq!(ProcessStat::parse(text), Some(stat));
        assert_eq!(ProcessStat::parse("7 (a) S 1 7"), None);
        assert_eq!(
            parse_boot_time("cpu 1 2\nbtime 1700000000\n"),
            Some(1_700_000_000)
        );
        assert_eq!(parse_boot_time("cpu 1 2\n"), None);
    }
}
