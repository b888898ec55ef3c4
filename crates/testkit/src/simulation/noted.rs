//! What a StatefulSet and a status have noted of a cluster: of what must not be forgotten, one copy has to stay, or nobody
//! could make up for it. Reads only what is written there.

use etcd_operator_api::names::ANNOTATION_REPLACE;
use serde_json::Value;

/// Whether a StatefulSet has the ID of its cluster noted on it.
pub(super) fn knows_cluster(set: &Value) -> bool {
    annotation(set, "/cluster-id").is_some()
}

/// Whether it has the very ID of the cluster and the incarnation that a status tells.
pub(super) fn knows_life(set: &Value, status: &Value) -> bool {
    let incarnation = annotation(set, "/incarnation").and_then(|text| text.parse::<i64>().ok());
    let cluster = annotation(set, "/cluster-id");
    cluster.is_some()
        && cluster == status["clusterID"].as_str()
        && incarnation == status["incarnation"].as_i64()
}

/// What is noted on it under the key that ends so.
fn annotation<'a>(set: &'a Value, ending: &str) -> Option<&'a str> {
    let annotations = set["metadata"]["annotations"].as_object()?;
    let (_, text) = annotations.iter().find(|(key, _)| key.ends_with(ending))?;
    text.as_str()
}

/// Whether it has all that a status tells of the voters and their volumes.
pub(super) fn knows_voters(set: &Value, status: &Value) -> bool {
    let noted: Vec<&str> = annotation(set, "/members")
        .unwrap_or_default()
        .split(',')
        .collect();
    let members = status["memberStatus"].as_array();
    members.into_iter().flatten().all(|member| {
        let text = |key: &str| member[key].as_str().unwrap_or_default().to_owned();
        let fields = ["name", "id", "claimUID", "volumeName"].map(text);
        text("role") != "voter" || noted.contains(&fields.join("/").as_str())
    })
}

/// Whether it has all that a status tells of a restore, but for what members have come to.
pub(super) fn knows_restore(set: &Value, status: &Value) -> bool {
    let raised = annotation(set, "/restored-revision").and_then(|text| text.parse().ok());
    if raised != status["restoredRevision"].as_i64() {
        return false;
    }
    let earlier: Vec<_> = annotation(set, "/earlier-restores")
        .map(|text| text.split(',').collect())
        .unwrap_or_default();
    let told: Vec<_> = status["earlierRestores"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if earlier != told {
        return false;
    }
    let noted: Option<Value> =
        annotation(set, "/restore-progress").and_then(|text| serde_json::from_str(text).ok());
    let told = status["restore"].as_object();
    let Some(told) = told else {
        return noted.is_none();
    };
    let of_all = told.iter().filter(|(key, _)| *key != "members");
    let of_all: serde_json::Map<String, Value> =
        of_all.map(|(key, value)| (key.clone(), value.clone())).collect();
    noted == Some(Value::Object(of_all))
}

/// Whether a status tells which volume is a member's own.
pub(super) fn is_noted(status: &Value, member: &str) -> bool {
    let members = status["memberStatus"].as_array();
    let own = members.and_then(|members| members.iter().find(|known| known["name"] == *member));
    own.is_some_and(|own| own["volumeName"].is_string())
}

/// Whether somebody asked for another member in the place of one that is still there.
pub(super) fn is_given_up(cluster: &Value) -> bool {
    let asked = cluster["metadata"]["annotations"][ANNOTATION_REPLACE].as_str();
    let members = cluster["status"]["memberStatus"].as_array();
    asked.is_some_and(|id| members.is_some_and(|members| members.iter().any(|known| known["id"] == *id)))
}
