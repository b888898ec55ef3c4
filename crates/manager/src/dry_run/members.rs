//! The members as they are now, by their pages of metrics, which the API server passes on: whoever runs this need not be
//! in the network of the pods.

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::names::METRICS_PORT;
use etcd_operator_restore::preview::MemberNow;
use futures::future::join_all;
use http::Request;

use super::objects::Found;

/// The revision of a member's data.
const REVISION: &str = "etcd_debugging_mvcc_current_revision";
/// Bytes of its database.
const DATABASE: &str = "etcd_mvcc_db_total_size_in_bytes";

/// Asks every member.
pub async fn now(cluster: &EtcdCluster, found: &Found) -> Vec<MemberNow> {
    let status = cluster.status.as_ref();
    let members = status.and_then(|status| status.member_status.as_deref());
    let names = members
        .unwrap_or_default()
        .iter()
        .map(|member| member.name.as_str());
    join_all(names.map(|name| one(name, found))).await
}

async fn one(name: &str, found: &Found) -> MemberNow {
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
    told(name, page)
}

fn told(name: &str, page: Result<String, String>) -> MemberNow {
    let name = name.to_owned();
    match page {
        Ok(page) => {
            let revision = figure(&page, REVISION);
            MemberNow {
                unknown: revision
                    .is_none()
                    .then(|| "it does not tell its revision".to_owned()),
                revision: revision.and_then(|revision| i64::try_from(revision).ok()),
                database: figure(&page, DATABASE),
                name,
            }
        }
        Err(why) => MemberNow {
            unknown: Some(why),
            name,
            ..MemberNow::default()
        },
    }
}

/// A figure without labels; etcd writes large ones as 1.2345e+06.
fn figure(page: &str, name: &str) -> Option<u64> {
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
    fn figures_are_read_as_etcd_writes_them() {
        let page = "# HELP x y\n# TYPE etcd_mvcc_db_total_size_in_bytes gauge\n\
            etcd_mvcc_db_total_size_in_bytes 2.5165824e+07\n\
            etcd_mvcc_db_total_size_in_use_in_bytes 7\n\
            etcd_debugging_mvcc_current_revision 48211\n";
        let member = told("c-0", Ok(page.to_owned()));
        assert_eq!(
            (member.revision, member.database),
            (Some(48_211), Some(25_165_824))
        );
        assert_eq!(member.unknown, None);
    }

    #[test]
    fn a_page_that_is_none_and_a_number_that_is_none_are_not_known() {
        for page in [
            "",
            "etcd_debugging_mvcc_current_revision 1.5",
            "etcd_debugging_mvcc_current_revision NaN",
        ] {
            let member = told("c-0", Ok(page.to_owned()));
            assert!(member.revision.is_none() && member.unknown.is_some(), "{page}");
        }
        let member = told("c-0", Err("forbidden".to_owned()));
        assert_eq!(member.unknown.as_deref(), Some("forbidden"));
    }
}
