//! Saying who asks, where etcd wants to know. Neither password nor token is ever shown.

use std::fmt;

use tonic::metadata::{Ascii, MetadataValue};

use super::{Call, Client};
use crate::error::Error;
use crate::wire::{AuthenticateRequest, AuthenticateResponse};

const AUTHENTICATE: Call = Call::cluster("/etcdserverpb.Auth/Authenticate");

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// The same connection, with a user's rights from now on. An etcd that asks nobody who they are takes no one.
    pub async fn login(self, user: &User) -> Result<Self, Error> {
        let question = AuthenticateRequest {
            name: user.name.clone(),
            password: user.password.clone(),
        };
        let answer: AuthenticateResponse = self.call(AUTHENTICATE, question).await?;
        let mut token: MetadataValue<Ascii> = answer
            .token
            .parse()
            .map_err(|_| self.malformed(AUTHENTICATE, "the token is none".to_owned()))?;
        token.set_sensitive(true);
        Ok(Self {
            token: Some(token),
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_ever_shown() {
        let user = User {
            name: "root".to_owned(),
            password: "hunter2".to_owned(),
        };
        assert_eq!(format!("{user:?}"), "User { name: \"root\", .. }");
    }
}
