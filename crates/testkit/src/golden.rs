//! Golden files of an earlier release: objects as they were stored, and what that release made of them.
//!
//! A case is two files. `NAME.yaml` holds the objects that the API server has when the operator starts. `NAME.json` holds
//! what the operator of that release wrote there, and which persisted fields its status then had. [`check`] lets the
//! present operator start over the same objects and compares. Nothing here writes a file: a golden file that differs is
//! either a bug or a change that running clusters will feel.

mod recorder;

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use etcd_operator_api::crd;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::recorder::Recorder;
use crate::Fake;
use crate::fake::Beginning;

/// The namespace of every case.
pub const NAMESPACE: &str = "default";
/// The time at which every case plays. It does not move, so that no written time depends on how fast the operator is.
pub const NOW: &str = "2026-03-01T12:00:00Z";
/// How long the operator works on a case. Nothing takes real time: the clock of the runtime advances when all tasks wait.
const WORK: Duration = Duration::from_secs(30);
/// Reasons of conditions that are read back from a stored status, and so keep their word.
const STABLE_REASONS: [&str; 4] = ["FailedBefore", "AwaitingRestore", "Waking", "DefinitionsOutdated"];

/// A kind whose status holds persisted state.
#[derive(Clone, Copy, Debug)]
pub struct Persisted {
    /// The kind, of the operator's own group.
    pub kind: &'static str,
    /// The fields of `status` that a later operator reads back, as `field` or `field.part`. Texts for users are not among
    /// them.
    pub fields: &'static [&'static str],
}

/// Condition types that 0.1.0 did not write. They repeat reasons of others, and no operator reads them back.
const NEWER_TYPES: [&str; 3] = ["Ready", "Reconciling", "Stalled"];

/// Words of commands that 0.1.0 did not write. A pod template that is rendered anew has them, one that is stored gets them with its
/// next change.
const NEWER_WORDS: [&str; 1] = ["--etcd-minor="];

/// Fields of the pods of Jobs that 0.1.0 did not write. A Job that is created has them, and one that exists is never changed.
const NEWER_POD_FIELDS: [&str; 1] = ["activeDeadlineSeconds"];

/// The pod of a written Job.
const POD: &str = "/patch/spec/template/spec";

/// The annotation with the hash of an object as it was applied.
const APPLIED: &str = "/patch/metadata/annotations/etcd.database.coreos.com~1applied";

/// The API server as every case finds it: with the operator's own kinds, whose rules are read once.
static SERVER: LazyLock<Beginning> = LazyLock::new(|| {
    let now: Timestamp = NOW.parse().expect("a time");
    let fake = Fake::with_clock(Arc::new(move || now));
    for definition in crd::all() {
        fake.register(&definition);
    }
    Beginning::of(&fake)
});

/// Compares every case of a folder with what this operator does now. `operate` runs the operator until it is dropped.
pub fn check<F, Fut>(folder: &Path, persisted: Persisted, operate: F)
where
    F: Fn(kube::Client) -> Fut,
    Fut: Future<Output = ()> + 'static,
{
    check_with(folder, persisted, |_| {}, operate);
}

/// The same where a default has changed since: `write_out` sets what that release took for granted.
pub fn check_with<F, Fut>(folder: &Path, persisted: Persisted, write_out: impl Fn(&mut Value), operate: F)
where
    F: Fn(kube::Client) -> Fut,
    Fut: Future<Output = ()> + 'static,
{
    let mut failures = Vec::new();
    let names = names(folder);
    assert!(!names.is_empty(), "{} holds no case", folder.display());
    for name in &names {
        let input = read(folder, name, "yaml");
        let mut objects: Vec<Value> =
            serde_saphyr::from_multiple(&input).unwrap_or_else(|error| panic!("{name}: {error}"));
        objects.iter_mut().for_each(&write_out);
        let mut made = run(&objects, persisted, &operate);
        let golden: Value = serde_json::from_str(&read(folder, name, "json"))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        if objects.iter().all(|object| object["kind"] != "StatefulSet") {
            overlook_newer(&golden, &mut made);
        }
        let mut found = Vec::new();
        differences("", &golden, &made, &mut found);
        failures.extend(found.into_iter().map(|difference| format!("{name}{difference}")));
    }
    assert!(
        failures.is_empty(),
        "what is stored or rendered differs from the recorded release:\n{}",
        failures.join("\n")
    );
}

/// What the operator makes of these objects.
fn run<F, Fut>(objects: &[Value], persisted: Persisted, operate: &F) -> Value
where
    F: Fn(kube::Client) -> Fut,
    Fut: Future<Output = ()> + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without IO can always be made");
    runtime.block_on(tokio::task::LocalSet::new().run_until(async {
        let fake = SERVER.begin();
        for object in objects {
            fake.put_object(completed(object));
        }
        let recorder = Recorder::over(fake.service());
        let operator = tokio::task::spawn_local(operate(kube::Client::new(recorder.clone(), NAMESPACE)));
        tokio::time::sleep(WORK).await;
        assert!(!operator.is_finished(), "the operator has ended by itself");
        operator.abort();
        let mut made = Map::new();
        made.insert("writes".to_owned(), json!(recorder.writes()));
        made.insert("persisted".to_owned(), json!(statuses(&fake, persisted)));
        Value::Object(made)
    }))
}

/// Takes out words and fields that are newer than the recorded release, and takes its hashes for the objects that have them.
fn overlook_newer(golden: &Value, made: &mut Value) {
    let is_newer = |word: &Value| {
        let word = word.as_str().unwrap_or_default();
        NEWER_WORDS.iter().any(|newer| word.starts_with(newer))
    };
    let objects = made["writes"].as_object_mut().into_iter().flatten();
    for (object, writes) in objects {
        let is_job = object.starts_with("jobs/");
        if !(remove_words(writes, &is_newer) | (is_job && remove_pod_fields(writes))) {
            continue;
        }
        for (index, write) in writes.as_array_mut().into_iter().flatten().enumerate() {
            let recorded = golden["writes"][object.as_str()][index].pointer(APPLIED);
            if let (Some(recorded), Some(hash)) = (recorded, write.pointer_mut(APPLIED)) {
                hash.clone_from(recorded);
            }
        }
    }
}

/// Removes newer fields from the pods of written Jobs, and says whether there were any.
fn remove_pod_fields(writes: &mut Value) -> bool {
    let mut is_changed = false;
    for write in writes.as_array_mut().into_iter().flatten() {
        if let Some(pod) = write.pointer_mut(POD).and_then(Value::as_object_mut) {
            let before = pod.len();
            pod.retain(|field, _| !NEWER_POD_FIELDS.contains(&field.as_str()));
            is_changed |= pod.len() != before;
        }
    }
    is_changed
}

/// Removes items of lists anywhere in a value, and says whether there were any.
fn remove_words(value: &mut Value, is_removed: &impl Fn(&Value) -> bool) -> bool {
    match value {
        Value::Array(items) => {
            let before = items.len();
            items.retain(|item| !is_removed(item));
            let mut is_changed = items.len() != before;
            for item in items {
                is_changed |= remove_words(item, is_removed);
            }
            is_changed
        }
        Value::Object(fields) => {
            let mut is_changed = false;
            for field in fields.values_mut() {
                is_changed |= remove_words(field, is_removed);
            }
            is_changed
        }
        _ => false,
    }
}

/// An object with what every case may leave out: namespace, UID and time of creation.
fn completed(object: &Value) -> Value {
    let mut object = object.clone();
    let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
    let kind = object["kind"].as_str().expect("a kind").to_lowercase();
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    let mut default = |key: &str, value: String| {
        metadata.entry(key).or_insert(Value::String(value));
    };
    default("namespace", NAMESPACE.to_owned());
    default("uid", format!("{kind}-{name}"));
    default("creationTimestamp", "2026-02-01T00:00:00Z".to_owned());
    object
}

/// The persisted part of the status of each object of the kind.
fn statuses(fake: &Fake, persisted: Persisted) -> BTreeMap<String, Value> {
    let version = "etcd.database.coreos.com/v1beta2";
    let objects = fake.list_objects(version, persisted.kind, NAMESPACE);
    let statuses = objects.iter().map(|object| {
        let mut kept = Map::new();
        for field in persisted.fields {
            let pointer = format!("/status/{}", field.replace('.', "/"));
            if let Some(value) = object.pointer(&pointer).filter(|value| !value.is_null()) {
                kept.insert((*field).to_owned(), without_texts(&recorder::readable(value)));
            }
        }
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let stable: Vec<Value> = conditions
            .filter(|condition| STABLE_REASONS.iter().any(|reason| condition["reason"] == *reason))
            .filter(|condition| NEWER_TYPES.iter().all(|type_| condition["type"] != *type_))
            .map(|condition| json!({"type": condition["type"], "status": condition["status"], "reason": condition["reason"]}))
            .collect();
        if !stable.is_empty() {
            kept.insert("conditions".to_owned(), Value::Array(stable));
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        (format!("{}/{name}", persisted.kind), Value::Object(kept))
    });
    statuses.collect()
}

/// The same without what is said to users about each member.
fn without_texts(value: &Value) -> Value {
    let mut value = value.clone();
    let all = value.as_array_mut().into_iter().flatten();
    all.for_each(|item| {
        item.as_object_mut().map(|item| item.remove("message"));
    });
    let members = value.get_mut("members").and_then(Value::as_array_mut);
    members.into_iter().flatten().for_each(|member| {
        member.as_object_mut().map(|member| member.remove("message"));
    });
    value
}

/// The names of the cases of a folder.
fn names(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = files.map(|file| file.expect("a file").path());
    let cases = paths.filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    let mut names: Vec<_> = cases
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

fn read(folder: &Path, name: &str, end: &str) -> String {
    let path = folder.join(format!("{name}.{end}"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Where two values differ, one line for each place.
fn differences(path: &str, golden: &Value, made: &Value, found: &mut Vec<String>) {
    match (golden, made) {
        (Value::Object(golden), Value::Object(made)) => {
            for (key, value) in golden {
                differences(
                    &format!("{path} {key}"),
                    value,
                    made.get(key).unwrap_or(&Value::Null),
                    found,
                );
            }
            for (key, value) in made.iter().filter(|(key, _)| !golden.contains_key(*key)) {
                found.push(format!("{path} {key}: recorded nothing, is now {value}"));
            }
        }
        (Value::Array(golden), Value::Array(made)) if golden.len() == made.len() => {
            for (index, (golden, made)) in golden.iter().zip(made).enumerate() {
                differences(&format!("{path} [{index}]"), golden, made, found);
            }
        }
        _ if golden == made => {}
        _ => found.push(format!("{path}: recorded {golden}, is now {made}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_found_with_its_path() {
        let golden = json!({"a": {"b": [1, 2]}, "gone": 1, "same": null});
        let made = json!({"a": {"b": [1, 3]}, "new": 1, "same": null});
        let mut found = Vec::new();
        differences("", &golden, &made, &mut found);
        assert_eq!(
            found,
            [
                " a b [1]: recorded 2, is now 3",
                " gone: recorded 1, is now null",
                " new: recorded nothing, is now 1",
            ]
        );
    }
}
