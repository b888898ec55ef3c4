//! Reads the current state of the members from their metrics, through the API server's proxy, because the command may run
//! outside of the pod network.

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::names::METRICS_PORT;
use etcd_operator_restore::dry_run::MemberState;
use futures::future::join_all;
use http::Request;

use super::objects::Found;

/// Metric with the revision of a member's data.
const REVISION: &str = "etcd_debugging_mvcc_current_revision";
/// Metric with the size of a member's database in bytes.
const DATABASE: &str = "etcd_mvcc_db_total_size_in_bytes";

/// The state of every member in the status of the cluster. One that cannot be read has the reason in `unknown`.
pub async fn member_states(cluster: &EtcdCluster, found: &Found) -> Vec<MemberState> {
    let status = cluster.status.as_ref();
    let members = status.and_then(|status| status.member_status.as_deref());
    let names = members
        .unwrap_or_default()
        .iter()
        .map(|member| member.name.as_str());
    join_all(names.map(|name| member_state(name, found))).await
}

async fn member_state(name: &str, found: &Found) -> MemberState {
    let namespace = &found.namespace;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{METRICS_PORT}/proxy/metrics");
    let page = match Request::get(path).body(Vec::new()) {
        Ok(request) => found
            .client
            .request_text(request)
            .await
            .map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    parse_metrics(name, page)
}

fn parse_metrics(name: &str, page: Result<String, String>) -> MemberState {
    let name = name.to_owned();
    match page {
        Ok(page) => {
            let revision = metric_value(&page, REVISION);
            MemberState {
                unknown: revision
                    .is_none()
                    .then(|| "its metrics do not contain the revision".to_owned()),
                revision: revision.and_then(|revision| i64::try_from(revision).ok()),
                database: metric_value(&page, DATABASE),
                name,
            }
        }
        Err(why) => MemberState {
            unknown: Some(why),
            name,
            ..MemberState::default()
        },
    }
}

/// The value of a metric without labels; `None` if it is absent or no integer. Large values have the form 1.2345e+06.
fn metric_value(page: &str, name: &str) -> Option<u64> {
    let value = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    let (digits, exponent) = value.trim().split_once("e+").unwrap_or((value.trim(), "0"));
    let exponent: usize = exponent.parse().ok()?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let zeros = exponent.checked_sub(fraction.len())?;
    format!("{whole}{fraction}{}", "0".repeat(zeros.min(20)))
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_values_are_parsed_as_etcd_writes_them() {
        let page = "# HELP x y\n# TYPE etcd_mvcc_db_total_size_in_bytes gauge\n\
            etcd_mvcc_db_total_size_in_bytes 2.5165824e+07\n\
            etcd_mvcc_db_total_size_in_use_in_bytes 7\n\
            etcd_debugging_mvcc_current_revision 48211\n";
        let member = parse_metrics("c-0", Ok(page.to_owned()));
        assert_eq!(
            (member.revision, member.database),
            (Some(48_211), Some(25_165_824))
        );
        assert_eq!(member.unknown, None);
    }

    #[test]
    fn missing_or_invalid_metrics_are_unknown() {
        for page in [
            "",
            "etcd_debugging_mvcc_current_revision 1.5",
            "etcd_debugging_mvcc_current_revision NaN",
        ] {
            let member = parse_metrics("c-0", Ok(page.to_owned()));
            assert!(member.revision.is_none() && member.unknown.is_some(), "{page}");
        }
        let member = parse_metrics("c-0", Err("forbidden".to_owned()));
        assert_eq!(member.unknown.as_deref(), Some("forbidden"));
    }
}
