//! One bed's requests as they are read, one after the other.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ask, BINDINGS, Heard, OPERATOR};
use crate::control_plane::AuditEntry;

/// Accounts of pods, and nobody else, have their rights from roles for them.
const ACCOUNT: &str = "system:serviceaccount:";
/// Components of Kubernetes.
const SYSTEM: &str = "system:";
const DECISION: &str = "authorization.k8s.io/decision";
/// How a refusal for want of a right begins behind the name of what was asked for; others that share its code, such as
/// that of a namespace that goes, are about something else.
const WANT: &str = "is forbidden: User \"";

/// Who asked for what, and where: a namespace, or none.
type Question = (String, String, Ask);

#[derive(Debug, Default)]
pub(super) struct Bed {
    had: BTreeSet<Question>,
    refused: BTreeMap<Question, String>,
    /// Somebody has taken rights away since they were given last.
    taken: bool,
}

impl Bed {
    pub(super) fn note(&mut self, entry: &AuditEntry) {
        let user = &entry.effective_user().username;
        let Some(object) = &entry.object_ref else {
            return;
        };
        let code = entry.response_status.as_ref().map_or(0, |status| status.code);
        if object.resource.ends_with(BINDINGS) && !user.starts_with(SYSTEM) && (200..300).contains(&code) {
            match entry.verb.as_str() {
                "delete" | "deletecollection" => self.taken = true,
                "create" | "patch" | "update" => self.taken = false,
                _ => {}
            }
        }
        if !user.starts_with(ACCOUNT) || !entry.user_agent.starts_with(OPERATOR) {
            return;
        }
        let resource = match object.subresource.as_str() {
            "" => object.resource.clone(),
            subresource => format!("{}/{subresource}", object.resource),
        };
        let question = |verb: &str| {
            let ask = Ask::new(verb, &resource, &object.api_group);
            (user.clone(), object.namespace.clone(), ask)
        };
        let is_let_in = entry
            .annotations
            .get(DECISION)
            .is_none_or(|said| said != "forbid");
        let said = entry
            .response_status
            .as_ref()
            .map_or("", |status| &status.message);
        if !is_let_in || (code == 403 && said.contains(WANT)) {
            // What an apply would have created is judged once more, behind the door.
            let verb = if is_let_in { "create" } else { &entry.verb };
            if !self.taken {
                self.refused.insert(question(verb), said.to_owned());
            }
            return;
        }
        self.had.insert(question(&entry.verb));
        if entry.verb == "patch" && code == 201 {
            self.had.insert(question("create"));
        }
    }

    /// What was refused at one time and not at another was not missing from the roles: they were on their way, or the
    /// API server had not read them again.
    pub(super) fn heard(self) -> Heard {
        let Self {
            had,
            refused,
            taken: _,
        } = self;
        let refused = refused.iter().filter(|(question, _)| !had.contains(question));
        Heard {
            refused: refused
                .map(|((user, namespace, ask), said)| {
                    let place = match namespace.as_str() {
                        "" => "in no namespace".to_owned(),
                        namespace => format!("in {namespace}"),
                    };
                    format!("{user} was never allowed to {ask} {place}: {said}")
                })
                .collect(),
            used: had.into_iter().map(|(_, _, ask)| ask).collect(),
        }
    }
}
