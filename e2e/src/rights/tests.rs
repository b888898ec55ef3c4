//! What is heard in a log, and what follows from it.

use serde_json::{Value, json};

use super::verdict::Terms;
use super::*;

const ACCOUNT: &str = "system:serviceaccount:etcd:etcd-operator";

/// A request of the operator for pods of the namespace `shop`.
fn request(verb: &str, code: u16) -> Value {
    json!({
        "auditID": "1", "stage": "ResponseComplete", "verb": verb, "requestURI": "/x",
        "userAgent": "etcd-operator/0.1.0 (abc)", "user": {"username": ACCOUNT},
        "objectRef": {"resource": "pods", "namespace": "shop"}, "responseStatus": {"code": code},
        "annotations": {"authorization.k8s.io/decision": "allow"},
        "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
    })
}

fn refused(verb: &str) -> Value {
    let mut entry = request(verb, 403);
    entry["annotations"]["authorization.k8s.io/decision"] = json!("forbid");
    entry["responseStatus"]["message"] = json!(format!(
        "pods is forbidden: User \"{ACCOUNT}\" cannot {verb} resource \"pods\""
    ));
    entry
}

/// Somebody gives rights or takes them.
fn binding(verb: &str, user: &str) -> Value {
    let mut entry = request(verb, 200);
    entry["userAgent"] = json!("helm");
    entry["user"]["username"] = json!(user);
    entry["objectRef"] = json!({"resource": "clusterrolebindings", "apiGroup": "rbac.authorization.k8s.io"});
    entry
}

fn heard(log: &[Value]) -> Heard {
    let text: String = log
        .iter()
        .flat_map(|entry| [entry.to_string(), "\n".to_owned()])
        .collect();
    read(text.as_bytes()).unwrap()
}

fn used(log: &[Value]) -> Vec<String> {
    heard(log).used.iter().map(Ask::to_string).collect()
}

fn pods(verb: &str) -> Ask {
    Ask::new(verb, "pods", "")
}

#[test]
fn what_an_account_of_the_operator_was_let_do_counts_whatever_came_of_it() {
    let mut status = request("patch", 409);
    status["objectRef"] = json!({
        "resource": "etcdclusters", "subresource": "status", "apiGroup": "etcd.database.coreos.com", "namespace": "shop",
    });
    let mut by_hand = request("delete", 200);
    by_hand["userAgent"] = json!("kubectl");
    let mut administrator = request("delete", 200);
    administrator["user"]["username"] = json!("bed-admin");
    let mut page = request("get", 200);
    page["objectRef"] = Value::Null;
    assert_eq!(
        used(&[request("get", 404), status, by_hand, administrator, page]),
        ["get pods", "patch etcdclusters/status.etcd.database.coreos.com"]
    );
}

#[test]
fn an_apply_that_creates_takes_two_rights() {
    assert_eq!(used(&[request("patch", 200)]), ["patch pods"]);
    assert_eq!(used(&[request("patch", 201)]), ["create pods", "patch pods"]);
    let mut half = request("patch", 403);
    half["responseStatus"]["message"] = refused("create")["responseStatus"]["message"].clone();
    let [refused] = &heard(&[request("patch", 200), half]).refused[..] else {
        panic!("it was let create");
    };
    assert!(
        refused.contains("never allowed to create pods in shop"),
        "{refused}"
    );
}

#[test]
fn a_refusal_counts_unless_the_right_was_there_at_another_time() {
    assert_eq!(heard(&[refused("get")]).refused.len(), 1);
    for log in [
        [refused("get"), request("get", 200)],
        [request("get", 200), refused("get")],
    ] {
        assert_eq!(heard(&log).refused, [""; 0]);
    }
    // A right elsewhere is none here.
    let mut elsewhere = request("get", 200);
    elsewhere["objectRef"]["namespace"] = json!("bank");
    assert_eq!(heard(&[elsewhere, refused("get")]).refused.len(), 1);
}

#[test]
fn a_refusal_after_somebody_took_the_rights_is_as_it_was_meant() {
    let count = |log: &[Value]| heard(log).refused.len();
    let taken = binding("delete", "bed-admin");
    assert_eq!(count(&[taken.clone(), refused("get")]), 0);
    let given = binding("create", "bed-admin");
    assert_eq!(count(&[taken, given, refused("get")]), 1);
    // Kubernetes clears namespaces of scenarios, with all that is or could be in them.
    let cleared = binding(
        "deletecollection",
        "system:serviceaccount:kube-system:namespace-controller",
    );
    assert_eq!(count(&[cleared, refused("get")]), 1);
}

#[test]
fn a_namespace_that_goes_is_no_missing_right() {
    let mut going = request("create", 403);
    going["responseStatus"]["message"] = json!(
        "pods \"a\" is forbidden: unable to create new content in namespace shop because it is being terminated"
    );
    let heard = heard(&[going]);
    assert_eq!(heard.refused, [""; 0]);
    assert!(heard.used.contains(&pods("create")));
}

#[test]
fn a_bed_on_which_the_operator_had_more_rights_than_ours_proves_nothing() {
    let terms = Terms {
        granted: [pods("get")].into(),
    };
    assert!(terms.on_a_bed(&heard(&[request("get", 200)])).is_ok());
    let more = terms.on_a_bed(&heard(&[request("delete", 200)])).unwrap_err();
    assert!(more.to_string().contains("delete pods"), "{more}");
    let less = terms.on_a_bed(&heard(&[refused("list")])).unwrap_err();
    assert!(less.to_string().contains("list pods in shop"), "{less}");
}

#[test]
fn what_the_whole_gate_did_not_use_is_named() {
    let terms = Terms {
        granted: ["get", "list"].map(pods).into(),
    };
    let missing = |used: &[&str]| {
        let used = used.iter().map(|verb| pods(verb)).collect();
        let verdict = terms.in_all(&used);
        verdict.err().map(|error| {
            let text = error.to_string();
            text.split('.').next().unwrap_or_default().to_owned()
        })
    };
    let never = |which: &str| Some(format!("granted and never used: {which}"));
    for (used, told) in [
        (&["get", "list"][..], None),
        (&["get"], never("list pods")),
        (&[], never("get pods, list pods")),
    ] {
        assert_eq!(missing(used), told);
    }
}

#[test]
fn a_part_says_how_far_it_came_and_nothing_where_no_operator_ran() {
    let terms = Terms {
        granted: ["get", "list"].map(pods).into(),
    };
    let said = terms.so_far(&[pods("get")].into()).unwrap();
    assert!(
        said.starts_with("rights: 1 of 2 were used; not used: list pods\n"),
        "{said}"
    );
    assert_eq!(terms.so_far(&BTreeSet::new()), None);
}

#[test]
fn no_log_is_silence_and_a_torn_line_is_left_for_later() {
    assert_eq!(hear(Path::new("/nowhere/audit.log")).unwrap(), Heard::default());
    let torn = format!("{}\n{}", request("get", 200), request("delete", 200));
    assert_eq!(read(torn.as_bytes()).unwrap().used, [pods("get")].into());
}
