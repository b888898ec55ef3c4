//! What members' pods and claims go through, in words by which the models of the machines are held to a real cluster:
//! the same watching on both sides, and the same words for what is seen.
//!
//! A move is one change of one object, told together with what the other was like at that moment, in brackets: the
//! order in which claims and pods come and go is part of it. Times, names and numbers are not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use etcd_operator_api::names::EXIT_BEFORE_ETCD;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Members' objects carry it.
const LABEL: &str = "etcd_cluster";
/// A claim is called this and the name of its pod.
const CLAIM: &str = "data-";
/// An object that is not there.
const ABSENT: &str = "absent";

/// What was seen; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Moves(Arc<Mutex<Vec<Seen>>>);

/// An object as it was since a version of the API server, or that it is not known from there on how it was.
#[derive(Debug)]
struct Seen {
    version: u64,
    /// The namespace and the name of the pod.
    member: (String, String),
    part: Part,
    state: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Claim,
    Pod,
}

impl Moves {
    /// Watches every namespace, for as long as it is polled.
    pub async fn watch(&self, client: Client) {
        let pods = Api::<Pod>::all(client.clone());
        let claims = Api::<PersistentVolumeClaim>::all(client);
        futures::join!(
            self.follow(pods, Part::Pod, pod),
            self.follow(claims, Part::Claim, claim)
        );
    }

    async fn follow<K>(&self, api: Api<K>, part: Part, words: fn(&Value) -> String)
    where
        K: Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug + Send + 'static,
    {
        let config = watcher::Config::default().labels(LABEL);
        let mut watch = watcher(api, config).default_backoff().boxed();
        let mut known = BTreeSet::new();
        while let Some(event) = watch.next().await {
            match event {
                Ok(Event::Init) => {
                    for member in std::mem::take(&mut known) {
                        self.lose(member, part);
                    }
                }
                Ok(Event::Apply(object) | Event::InitApply(object)) => {
                    let value = serde_json::to_value(&object).unwrap_or_default();
                    known.insert(member(&object));
                    self.see(&object, part, words(&value));
                }
                Ok(Event::Delete(object)) => {
                    known.remove(&member(&object));
                    self.see(&object, part, ABSENT.to_owned());
                }
                // A watch that broke goes on where it was, or begins anew and says so.
                Ok(Event::InitDone) | Err(_) => {}
            }
        }
    }

    fn with<T>(&self, run: impl FnOnce(&mut Vec<Seen>) -> T) -> T {
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn see(&self, object: &impl Resource, part: Part, state: String) {
        let version = object.resource_version().and_then(|version| version.parse().ok());
        let (member, state) = (member(object), Some(state));
        self.with(|seen| {
            seen.push(Seen {
                version: version.unwrap_or_default(),
                member,
                part,
                state,
            });
        });
    }

    /// What happened while nobody watched is not known, so that what is seen next does not follow on what was seen last.
    fn lose(&self, member: (String, String), part: Part) {
        self.with(|seen| {
            let version = seen.iter().map(|one| one.version).max().unwrap_or_default();
            seen.push(Seen {
                version,
                member,
                part,
                state: None,
            });
        });
    }

    /// Every move there was, each once, as lines.
    pub fn lines(&self) -> BTreeSet<String> {
        self.with(|seen| {
            seen.sort_by_key(|one| one.version);
            let mut now: BTreeMap<(&(String, String), Part), Option<&str>> = BTreeMap::new();
            let mut lines = BTreeSet::new();
            for one in seen.iter() {
                let after = one.state.as_deref();
                let before = now.insert((&one.member, one.part), after).unwrap_or(Some(ABSENT));
                let (own, others) = match one.part {
                    Part::Claim => ("claim", Part::Pod),
                    Part::Pod => ("pod", Part::Claim),
                };
                let beside = now.get(&(&one.member, others)).copied().unwrap_or(Some(ABSENT));
                if let (Some(before), Some(after), Some(beside)) = (before, after, beside)
                    && before != after
                {
                    lines.insert(format!("{own}: {before} -> {after} ({beside})"));
                }
            }
            lines
        })
    }
}

fn member(object: &impl Resource) -> (String, String) {
    let name = object.name_any();
    let pod = name.strip_prefix(CLAIM).unwrap_or(&name);
    (object.namespace().unwrap_or_default(), pod.to_owned())
}

fn claim(claim: &Value) -> String {
    let phase = claim["status"]["phase"].as_str().unwrap_or("new").to_lowercase();
    ending(phase, claim)
}

fn pod(pod: &Value) -> String {
    let status = &pod["status"];
    let condition = |kind: &str| {
        let all = status["conditions"].as_array().into_iter().flatten();
        all.into_iter().find(|one| one["type"] == kind)
    };
    let mut all = status["containerStatuses"].as_array().into_iter().flatten();
    let container = all.find(|one| one["name"] == "etcd");
    let how = match container.map(|one| &one["state"]) {
        None if pod["spec"]["nodeName"].is_string() => "placed".to_owned(),
        None if condition("PodScheduled").is_some_and(|one| one["status"] == "False") => {
            "without a node".to_owned()
        }
        None => "new".to_owned(),
        Some(state) if state["running"].is_object() => {
            let is_ready = condition("Ready").is_some_and(|one| one["status"] == "True");
            if is_ready { "ready" } else { "running" }.to_owned()
        }
        Some(state) if state["terminated"].is_object() => {
            format!("ended {}", code(&state["terminated"]["exitCode"]))
        }
        Some(state) => match state["waiting"]["reason"].as_str() {
            None | Some("ContainerCreating" | "PodInitializing") => "creating".to_owned(),
            Some(reason) => reason.to_owned(),
        },
    };
    let has_ended = container.is_some_and(|one| one["lastState"]["terminated"].is_object());
    let again = has_ended.then(|| "again".to_owned());
    let phase = status["phase"]
        .as_str()
        .filter(|phase| ["Failed", "Succeeded"].contains(phase));
    let by = condition("DisruptionTarget")
        .filter(|one| one["status"] == "True")
        .map(|one| format!("by {}", one["reason"].as_str().unwrap_or("somebody")));
    let words = [Some(how), again, phase.map(str::to_lowercase), by];
    ending(words.into_iter().flatten().collect::<Vec<_>>().join(" "), pod)
}

/// By which code a container ended: by itself, as the program before etcd does, killed, or in any other way. Nobody decides by
/// in which of the others, and etcd itself knows several for the same.
fn code(code: &Value) -> i64 {
    match code.as_i64() {
        Some(code @ (0 | 137)) => code,
        Some(code) if code == i64::from(EXIT_BEFORE_ETCD) => code,
        _ => 1,
    }
}

fn ending(mut words: String, object: &Value) -> String {
    if object["metadata"]["deletionTimestamp"].is_string() {
        words += " going";
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    fn object<K: DeserializeOwned>(name: &str, version: &str) -> K {
        from_value(json!({"metadata": {"name": name, "namespace": "n", "resourceVersion": version}})).unwrap()
    }

    fn see_pod(moves: &Moves, version: &str, state: &str) {
        moves.see(&object::<Pod>("c-0", version), Part::Pod, state.to_owned());
    }

    #[test]
    fn moves_are_told_in_the_order_of_the_server_and_not_in_that_of_the_watches() {
        let moves = Moves::default();
        see_pod(&moves, "3", "new");
        see_pod(&moves, "10", "placed");
        let claim = object::<PersistentVolumeClaim>("data-c-0", "9");
        moves.see(&claim, Part::Claim, "pending".to_owned());
        let lines: Vec<String> = moves.lines().into_iter().collect();
        assert_eq!(
            lines,
            [
                "claim: absent -> pending (new)",
                "pod: absent -> new (absent)",
                "pod: new -> placed (pending)"
            ]
        );
    }

    #[test]
    fn what_nobody_saw_is_no_move() {
        let moves = Moves::default();
        see_pod(&moves, "3", "new");
        moves.lose(("n".to_owned(), "c-0".to_owned()), Part::Pod);
        see_pod(&moves, "7", "ready");
        see_pod(&moves, "8", "ready going");
        let lines: Vec<String> = moves.lines().into_iter().collect();
        assert_eq!(
            lines,
            [
                "pod: absent -> new (absent)",
                "pod: ready -> ready going (absent)"
            ]
        );
    }

    #[test]
    fn a_pod_is_told_in_few_words() {
        let told = |status: Value| pod(&json!({"spec": {"nodeName": "node-1"}, "status": status}));
        let etcd = |state: Value, last: Value| json!({"containerStatuses": [{"name": "etcd", "state": state, "lastState": last}]});
        assert_eq!(told(json!({})), "placed");
        assert_eq!(
            told(etcd(json!({"waiting": {"reason": "PodInitializing"}}), json!({}))),
            "creating"
        );
        let ended = json!({"terminated": {"exitCode": 137}});
        assert_eq!(told(etcd(ended.clone(), json!({}))), "ended 137");
        assert_eq!(told(etcd(json!({"running": {}}), ended)), "running again");
        let panics = json!({"terminated": {"exitCode": 2}});
        assert_eq!(told(etcd(panics, json!({}))), "ended 1");
        let mut evicted = etcd(json!({"running": {}}), json!({}));
        evicted["conditions"] = json!([
            {"type": "Ready", "status": "True"},
            {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
        ]);
        assert_eq!(told(evicted), "ready by EvictionByEvictionAPI");
    }
}
