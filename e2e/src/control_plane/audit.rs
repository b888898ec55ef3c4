//! What the API server was asked, by whom and with what result, read from its audit log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

/// Every request with its metadata, once when a long one starts to answer and once at its end. What the operator writes for
/// different purposes to one kind of object is logged with it.
pub(super) const POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1",
  "kind": "Policy",
  "omitStages": ["RequestReceived"],
  "rules": [
    { "level": "Request", "verbs": ["patch"], "resources": [
      { "group": "etcd.database.coreos.com", "resources": ["etcdclusters/status"] },
      { "group": "apps", "resources": ["statefulsets"] },
      { "group": "", "resources": ["pods"] }
    ] },
    { "level": "Request", "verbs": ["create"], "resources": [
      { "group": "events.k8s.io", "resources": ["events"] }
    ] },
    { "level": "Metadata" }
  ]
}
"#;

/// One line of the audit log.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// The same for all entries about one request.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// `ResponseStarted` for a watch that is now open, `ResponseComplete` when the request is over, `Panic`.
    pub stage: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; lower-case HTTP method for
    /// what is no resource.
    pub verb: String,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// Who sent the request.
    pub user: AuditUser,
    /// For whom, where the sender acted as somebody else.
    pub impersonated_user: Option<AuditUser>,
    /// What the client said it is.
    #[serde(default)]
    pub user_agent: String,
    /// What was asked for; absent for paths such as `/readyz`.
    pub object_ref: Option<AuditObject>,
    /// What was sent, for the few requests about which the policy has that logged.
    #[serde(default)]
    pub request_object: Value,
    /// The answer.
    pub response_status: Option<AuditStatus>,
    /// What was noted about it, such as whether it was authorized.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// When the request arrived, RFC 3339 with microseconds.
    pub request_received_timestamp: String,
}

impl AuditEntry {
    /// Whose rights the request was judged by.
    pub fn effective_user(&self) -> &AuditUser {
        self.impersonated_user.as_ref().unwrap_or(&self.user)
    }
}

/// A user, as the API server knows one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AuditUser {
    /// User name.
    pub username: String,
    /// Groups.
    pub groups: Vec<String>,
}

/// What was asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditObject {
    /// Plural name of the resource.
    pub resource: String,
    /// `status`, `scale` and the like, or empty.
    pub subresource: String,
    /// API group, empty for the core group.
    pub api_group: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, or empty for lists and watches.
    pub name: String,
}

/// The answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AuditStatus {
    /// HTTP status.
    pub code: u16,
    /// Machine-readable reason of a refusal.
    pub reason: String,
    /// Text of a refusal.
    pub message: String,
}

/// A point in the audit log: entries written after it count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditMark(u64);

/// Which entries are wanted; what is not named is not looked at.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    since: AuditMark,
    user_agent: Option<String>,
    user: Option<String>,
    verbs: Vec<String>,
    resource: Option<String>,
    namespace: Option<String>,
}

impl AuditFilter {
    /// Everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only what was logged after the mark.
    #[must_use]
    pub fn since(mut self, mark: AuditMark) -> Self {
        self.since = mark;
        self
    }

    /// Only requests of clients whose user agent begins like this.
    #[must_use]
    pub fn user_agent(mut self, prefix: &str) -> Self {
        self.user_agent = Some(prefix.to_owned());
        self
    }

    /// Only requests that count as this user's.
    #[must_use]
    pub fn user(mut self, name: &str) -> Self {
        self.user = Some(name.to_owned());
        self
    }

    /// Only requests with this verb; several calls allow several.
    #[must_use]
    pub fn verb(mut self, verb: &str) -> Self {
        self.verbs.push(verb.to_owned());
        self
    }

    /// Only requests that change something.
    #[must_use]
    pub fn writes(self) -> Self {
        ["create", "update", "patch", "delete", "deletecollection"]
            .iter()
            .fold(self, |f, verb| f.verb(verb))
    }

    /// Only requests for this resource, by plural name and, for a subresource, `/` and its name.
    #[must_use]
    pub fn resource(mut self, resource: &str) -> Self {
        self.resource = Some(resource.to_owned());
        self
    }

    /// Only requests in this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    fn admits(&self, entry: &AuditEntry) -> bool {
        let object = entry.object_ref.as_ref();
        let resource = |object: &AuditObject| match object.subresource.as_str() {
            "" => object.resource.clone(),
            subresource => format!("{}/{subresource}", object.resource),
        };
        self.user_agent
            .as_ref()
            .is_none_or(|prefix| entry.user_agent.starts_with(prefix))
            && self
                .user
                .as_ref()
                .is_none_or(|name| entry.effective_user().username == *name)
            && (self.verbs.is_empty() || self.verbs.contains(&entry.verb))
            && self
                .resource
                .as_ref()
                .is_none_or(|name| object.is_some_and(|o| resource(o) == *name))
            && self
                .namespace
                .as_ref()
                .is_none_or(|name| object.is_some_and(|o| o.namespace == *name))
    }
}

/// The end of the last whole line of the log.
pub(super) fn end(log: &Path) -> std::io::Result<AuditMark> {
    /// No line is longer.
    const LINE: u64 = 4 << 20;
    let mut file = File::open(log)?;
    let from = file.metadata()?.len().saturating_sub(LINE);
    file.seek(SeekFrom::Start(from))?;
    let (mut at, mut end) = (from, from);
    for byte in BufReader::new(file).bytes() {
        at += 1;
        if byte? == b'\n' {
            end = at;
        }
    }
    Ok(AuditMark(end))
}

/// The requests in the log that the filter admits, one entry each: the newest that was written about it.
pub(super) fn requests(log: &Path, filter: &AuditFilter) -> Result<Vec<AuditEntry>> {
    let mut file = match File::open(log) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot open {}", log.display())),
    };
    file.seek(SeekFrom::Start(filter.since.0))
        .context("cannot go to the mark in the audit log")?;
    newest_per_request(BufReader::new(file), filter)
}

fn newest_per_request(mut log: impl BufRead, filter: &AuditFilter) -> Result<Vec<AuditEntry>> {
    let mut requests: Vec<AuditEntry> = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        log.read_until(b'\n', &mut line)
            .context("cannot read the audit log")?;
        // A line without its end is still being written.
        if line.last() != Some(&b'\n') {
            return Ok(requests);
        }
        let entry: AuditEntry = serde_json::from_slice(&line)
            .with_context(|| format!("odd line in the audit log: {}", String::from_utf8_lossy(&line)))?;
        if !filter.admits(&entry) {
            continue;
        }
        match requests.iter_mut().find(|known| known.audit_id == entry.audit_id) {
            Some(known) => *known = entry,
            None => requests.push(entry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, stage: &str, verb: &str, agent: &str, object: &serde_json::Value) -> String {
        let entry = serde_json::json!({
            "auditID": id, "stage": stage, "verb": verb, "requestURI": "/x", "userAgent": agent,
            "user": { "username": "admin" }, "objectRef": object,
            "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
        });
        format!("{entry}\n")
    }

    fn log() -> String {
        let pods = serde_json::json!({ "resource": "pods", "namespace": "a" });
        let status =
            serde_json::json!({ "resource": "pods", "subresource": "status", "namespace": "a", "name": "p" });
        [
            line("1", "ResponseStarted", "watch", "operator/1", &pods),
            line("2", "ResponseComplete", "patch", "operator/1", &status),
            line("3", "ResponseComplete", "create", "kubectl", &pods),
            line("1", "ResponseComplete", "watch", "operator/1", &pods),
        ]
        .concat()
    }

    fn ids(filter: &AuditFilter, log: &str) -> Vec<String> {
        newest_per_request(log.as_bytes(), filter)
            .unwrap()
            .into_iter()
            .map(|e| e.audit_id)
            .collect()
    }

    #[test]
    fn a_watch_that_began_and_ended_is_one_request() {
        let all = newest_per_request(log().as_bytes(), &AuditFilter::new()).unwrap();
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].stage, "ResponseComplete");
    }

    #[test]
    fn a_mark_lies_before_a_line_still_being_written() {
        let bed = crate::bed_dir::BedDir::create().unwrap();
        let (whole, path) = (log(), bed.path().join("marked.log"));
        let torn = line("4", "ResponseComplete", "get", "kubectl", &serde_json::json!({}));
        std::fs::write(&path, format!("{whole}{}", &torn[..20])).unwrap();
        let mark = end(&path).unwrap();
        assert_eq!(mark, AuditMark(whole.len() as u64));
        std::fs::write(&path, format!("{whole}{torn}")).unwrap();
        let later = requests(&path, &AuditFilter::new().since(mark)).unwrap();
        assert_eq!(later.len(), 1);
        assert_eq!(later[0].audit_id, "4");
    }

    #[test]
    fn what_was_sent_is_read_where_it_is_logged() {
        let mut entry: Value =
            serde_json::from_str(&line("5", "ResponseComplete", "patch", "a", &Value::Null)).unwrap();
        entry["requestObject"] = serde_json::json!({ "status": { "phase": "Running" } });
        let read = newest_per_request(format!("{entry}\n{}", log()).as_bytes(), &AuditFilter::new()).unwrap();
        assert_eq!(read[0].request_object["status"]["phase"], "Running");
        assert_eq!(read.last().unwrap().request_object, Value::Null);
    }

    #[test]
    fn filters_narrow_by_agent_verb_and_resource() {
        let log = log();
        assert_eq!(ids(&AuditFilter::new().user_agent("operator/"), &log), ["1", "2"]);
        assert_eq!(ids(&AuditFilter::new().writes(), &log), ["2", "3"]);
        assert_eq!(
            ids(&AuditFilter::new().verb("patch").verb("watch"), &log),
            ["1", "2"]
        );
        assert_eq!(ids(&AuditFilter::new().resource("pods"), &log), ["1", "3"]);
        assert_eq!(ids(&AuditFilter::new().resource("pods/status"), &log), ["2"]);
        assert_eq!(ids(&AuditFilter::new().namespace("b"), &log), [""; 0]);
    }

    #[test]
    fn a_line_still_being_written_is_left_for_the_next_reading() {
        let whole = log();
        let torn = &whole[..whole.len() - 20];
        assert_eq!(
            newest_per_request(torn.as_bytes(), &AuditFilter::new()).unwrap()[0].stage,
            "ResponseStarted"
        );
    }
}
