//! Faults on demand: which requests go wrong, how, and how often. Applying them is the service's business.

use std::time::Duration;

use super::route::{Route, Verb};

/// What goes wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The server answers with this code and does nothing.
    Status(u16),
    /// The server refuses the request with this code and message, as admission does, and does nothing.
    Refuse(u16, String),
    /// The server answers 429 with `Retry-After` in seconds and does nothing.
    TooManyRequests(u32),
    /// The request reaches the server only after this time; further rules still apply.
    Delay(Duration),
    /// The request takes effect, but the client sees a broken connection.
    LoseAnswer,
    /// The request never arrives; the client sees a broken connection.
    LoseRequest,
    /// The request is executed twice; the client sees the second answer.
    Duplicate,
}

/// Which requests a rule is about. Empty matches all.
#[derive(Debug, Clone, Default)]
pub struct Matching {
    verb: Option<Verb>,
    resource: Option<String>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    writes: bool,
}

impl Matching {
    /// Every request.
    pub fn any() -> Self {
        Matching::default()
    }

    /// Every request that can change something.
    pub fn writes() -> Self {
        Matching {
            writes: true,
            ..Matching::default()
        }
    }

    /// Only requests with this verb.
    #[must_use]
    pub fn verb(self, verb: Verb) -> Self {
        Matching {
            verb: Some(verb),
            ..self
        }
    }

    /// Only requests for this resource (plural name).
    #[must_use]
    pub fn resource(self, plural: &str) -> Self {
        Matching {
            resource: Some(plural.to_owned()),
            ..self
        }
    }

    /// Only requests for this subresource; empty for the object itself.
    #[must_use]
    pub fn subresource(self, subresource: &str) -> Self {
        Matching {
            subresource: Some(subresource.to_owned()),
            ..self
        }
    }

    /// Only requests in this namespace.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        Matching {
            namespace: Some(namespace.to_owned()),
            ..self
        }
    }

    /// Only requests for the object of this name.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        Matching {
            name: Some(name.to_owned()),
            ..self
        }
    }

    /// `name` is the one in the path, or in the body of a creation.
    fn matches(&self, route: &Route, name: &str) -> bool {
        let fits =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        self.verb.is_none_or(|verb| verb == route.verb)
            && (!self.writes || route.verb.writes())
            && fits(&self.resource, &route.plural)
            && fits(&self.subresource, &route.subresource)
            && fits(&self.namespace, &route.namespace)
            && fits(&self.name, name)
    }
}

#[derive(Debug, Clone)]
struct Rule {
    matching: Matching,
    fault: Fault,
    left: u32,
}

/// The rules in force, in the order in which they were given.
#[derive(Debug, Default)]
pub(crate) struct Rules(Vec<Rule>);

impl Rules {
    pub(crate) fn add(&mut self, matching: Matching, fault: Fault, times: u32) {
        self.0.push(Rule {
            matching,
            fault,
            left: times,
        });
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Uses up what applies to a request: all delays, then at most one other fault.
    pub(crate) fn take(&mut self, route: &Route, name: &str) -> (Duration, Option<Fault>) {
        let mut delay = Duration::ZERO;
        let mut found = None;
        for rule in &mut self.0 {
            if rule.left == 0 || !rule.matching.matches(route, name) {
                continue;
            }
            if let Fault::Delay(more) = rule.fault {
                delay += more;
                rule.left -= 1;
            } else if found.is_none() {
                found = Some(rule.fault.clone());
                rule.left -= 1;
            }
        }
        self.0.retain(|rule| rule.left > 0);
        (delay, found)
    }
}
