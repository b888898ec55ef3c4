//! The two text formats of the page: `OpenMetrics`, and that of Prometheus for clients that do not ask for `OpenMetrics`.

use std::collections::HashSet;

/// A text format of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// `OpenMetrics` 1.0.0.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus.
    Prometheus,
}

impl Format {
    /// The format for a client that sends this `Accept` header. Every client reads the format of Prometheus.
    pub(crate) fn negotiate(accept: Option<&str>) -> Self {
        if accept.is_some_and(|accept| accept.contains("application/openmetrics-text")) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The `Content-Type` header.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Rewrites `OpenMetrics` text in the format of Prometheus, where the family of a counter ends in `_total` like its samples, and
/// where there is no end mark.
pub(super) fn to_prometheus(open_metrics: &str) -> String {
    let types = open_metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let counters: HashSet<&str> = types.filter_map(|rest| rest.strip_suffix(" counter")).collect();
    let mut page = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines().filter(|line| *line != "# EOF") {
        let comment = ["# HELP ", "# TYPE "].into_iter().find_map(|start| {
            let (name, rest) = line.strip_prefix(start)?.split_once(' ')?;
            counters.contains(name).then_some((start, name, rest))
        });
        match comment {
            Some((start, name, rest)) => page.extend([start, name, "_total ", rest]),
            None => page.push_str(line),
        }
        page.push('\n');
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_open_metrics_only_if_it_accepts_it() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, format) in [
            (None, Format::Prometheus),
            (Some("*/*"), Format::Prometheus),
            (Some("text/plain"), Format::Prometheus),
            (Some(prometheus), Format::OpenMetrics),
        ] {
            assert_eq!(Format::negotiate(accept), format, "{accept:?}");
        }
    }

    #[test]
    fn counters_have_their_suffix_in_comments_of_the_format_of_prometheus() {
        let open_metrics = "# HELP runs Finished runs.\n# TYPE runs counter\nruns_total{a=\"# EOF\"} 1\n\
                            # HELP runs_now Runs counter\n# TYPE runs_now gauge\nruns_now 2\n# EOF\n";
        let prometheus = "# HELP runs_total Finished runs.\n# TYPE runs_total counter\nruns_total{a=\"# EOF\"} 1\n\
                          # HELP runs_now Runs counter\n# TYPE runs_now gauge\nruns_now 2\n";
        assert_eq!(to_prometheus(open_metrics), prometheus);
    }
}
