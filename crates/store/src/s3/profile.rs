//! Parses the AWS CLI files `credentials` and `config`, which the older operator expects in a Secret. If the
//! profile assumes a role, the AWS SDK reads the files instead.

use std::collections::BTreeMap;

use crate::secret::{InvalidConfig, Secret, SecretString};

/// The key of the Secret with the credentials file.
pub(crate) const CREDENTIALS_KEY: &str = "credentials";
/// The key of the Secret with the config file.
pub(crate) const CONFIG_KEY: &str = "config";

/// A profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    pub identity: Identity,
    pub region: Option<String>,
}

/// The source of the credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// An access key, possibly with a session token.
    Keys {
        id: String,
        secret: SecretString,
        token: Option<SecretString>,
    },
    /// A role to assume. The AWS SDK reads both files.
    Role {
        credentials: SecretString,
        config: SecretString,
    },
    /// The identity of the platform.
    Platform,
}

type Sections = BTreeMap<String, BTreeMap<String, String>>;

/// Reads the profile with this name.
pub(crate) fn read_profile(setting: &str, secret: &Secret, name: &str) -> Result<Profile, InvalidConfig> {
    let credentials = secret.text(setting, CREDENTIALS_KEY)?;
    let config = secret.text(setting, CONFIG_KEY)?;
    if credentials.is_none() && config.is_none() {
        // This error lists the keys that exist.
        secret.required(setting, CREDENTIALS_KEY)?;
    }
    let parsed = |key: &str, text: Option<&str>| {
        text.map_or_else(|| Ok(Sections::new()), |text| parse_sections(setting, key, text))
    };
    let keys = merged_profile(&parsed(CREDENTIALS_KEY, credentials)?, name);
    let settings = merged_profile(&parsed(CONFIG_KEY, config)?, name);
    let value = |name: &str| {
        keys.get(name)
            .or_else(|| settings.get(name))
            .filter(|v| !v.is_empty())
    };
    let missing = |what: &str| {
        let problem =
            format!("has no {what} in the profile {name}; for example: [{name}], and {what} = … below it");
        InvalidConfig::new(format!("the key {CREDENTIALS_KEY} of {setting}"), problem)
    };
    if value("credential_process").is_some() {
        let problem = "uses credential_process, which is not supported";
        return Err(InvalidConfig::new(setting, problem));
    }
    let identity = match (value("aws_access_key_id"), value("aws_secret_access_key")) {
        _ if value("role_arn").is_some() => Identity::Role {
            credentials: SecretString::new(credentials.unwrap_or_default()),
            config: SecretString::new(config.unwrap_or_default()),
        },
        (Some(id), Some(key)) => Identity::Keys {
            id: id.clone(),
            secret: SecretString::new(key),
            token: value("aws_session_token").map(SecretString::new),
        },
        (Some(_), None) => return Err(missing("aws_secret_access_key")),
        (None, Some(_)) => return Err(missing("aws_access_key_id")),
        (None, None) if credentials.is_some() => return Err(missing("aws_access_key_id")),
        (None, None) => Identity::Platform,
    };
    Ok(Profile {
        identity,
        region: settings.get("region").or_else(|| keys.get("region")).cloned(),
    })
}

/// Merges the sections `[name]` and `[profile name]`, which mean the same.
fn merged_profile(sections: &Sections, name: &str) -> BTreeMap<String, String> {
    let long = format!("profile {name}");
    let mut merged = sections.get(&long).cloned().unwrap_or_default();
    if let Some(short) = sections.get(name) {
        merged.extend(short.clone());
    }
    merged
}

fn parse_sections(setting: &str, key: &str, text: &str) -> Result<Sections, InvalidConfig> {
    let mut found = Sections::new();
    let mut current: Option<String> = None;
    let mut has_nested_settings = false;
    for (index, line) in text.lines().enumerate() {
        let is_indented = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let bad = |problem: &str| {
            let problem = format!("{problem} in line {}", index + 1);
            InvalidConfig::new(format!("the key {key} of {setting}"), problem)
        };
        if let Some(rest) = line.strip_prefix('[') {
            let name = rest
                .split_once(']')
                .ok_or_else(|| bad("has a section without `]`"))?
                .0;
            let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
            found.entry(name.clone()).or_default();
            current = Some(name);
            continue;
        }
        let Some(section) = &current else {
            return Err(bad("has a setting before the first [profile]"));
        };
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| bad("is neither a setting nor a [profile]"))?;
        let name = name.trim().to_ascii_lowercase();
        // Indented lines are nested settings of the setting above. None of them is needed.
        if is_indented && has_nested_settings {
            continue;
        }
        let value = strip_comment(value);
        has_nested_settings = value.is_empty();
        found
            .entry(section.clone())
            .or_default()
            .insert(name, value.to_owned());
    }
    Ok(found)
}

fn strip_comment(value: &str) -> &str {
    let end = [" #", " ;", "\t#", "\t;"]
        .iter()
        .filter_map(|mark| value.find(mark))
        .min();
    value[..end.unwrap_or(value.len())].trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(pairs: &[(&str, &str)]) -> Secret {
        let data: BTreeMap<String, Vec<u8>> = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
            .collect();
        Secret::from(data)
    }

    fn read_default(pairs: &[(&str, &str)]) -> Result<Profile, InvalidConfig> {
        read_profile("s3.awsSecret", &secret(pairs), "default")
    }

    #[test]
    fn aws_cli_files_are_parsed_with_comments_and_other_profiles() {
        let credentials = "# mine\n[other]\naws_access_key_id = NO\n\n[default]\r\naws_access_key_id=AKIA1 ; id\n  aws_secret_access_key = a/b+c=\n";
        let config = "[profile other]\nregion = eu-1\n[default]\nregion = eu-central-1\ns3 =\n  max_concurrent_requests = 20\n  addressing_style = path\n";
        let profile = read_default(&[("credentials", credentials), ("config", config)]).expect("read");
        assert_eq!(profile.region.as_deref(), Some("eu-central-1"));
        let Identity::Keys { id, secret, token } = profile.identity else {
            panic!("keys expected")
        };
        assert_eq!((id.as_str(), secret.reveal(), token), ("AKIA1", "a/b+c=", None));
    }

    #[test]
    fn another_profile_a_session_token_and_a_role_are_found() {
        let credentials = "[p1]\naws_access_key_id=A\naws_secret_access_key=B\naws_session_token=C==\n";
        let config = "[profile p2]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = p1\n";
        let secret = secret(&[("credentials", credentials), ("config", config)]);
        let first = read_profile("s3.awsSecret", &secret, "p1")
            .expect("read")
            .identity;
        assert!(matches!(first, Identity::Keys { token: Some(token), .. } if token.reveal() == "C=="));
        let second = read_profile("s3.awsSecret", &secret, "p2")
            .expect("read")
            .identity;
        assert!(matches!(second, Identity::Role { .. }));
    }

    #[test]
    fn a_config_file_without_credentials_selects_the_platform_identity() {
        let profile = read_default(&[("config", "[default]\nregion = x-1\n")]).expect("read");
        assert_eq!(profile.identity, Identity::Platform);
    }

    #[test]
    fn missing_and_wrong_settings_are_named_without_their_values() {
        let cases: [(&[(&str, &str)], &str); 6] = [
            (&[("accesskey", "hunter2")], "no key credentials"),
            (
                &[("credentials", "[default]\naws_access_key_id = hunter2\n")],
                "aws_secret_access_key",
            ),
            (
                &[("credentials", "[default]\naws_secret_access_key = hunter2\n")],
                "aws_access_key_id",
            ),
            (
                &[("credentials", "[prod]\naws_access_key_id = hunter2\n")],
                "profile default",
            ),
            (&[("credentials", "hunter2 = 1\n")], "line 1"),
            (
                &[("credentials", "[default]\ncredential_process = hunter2\n")],
                "credential_process",
            ),
        ];
        for (pairs, expected) in cases {
            let message = read_default(pairs).expect_err(expected).to_string();
            assert!(
                message.contains(expected) && !message.contains("hunter2"),
                "{message}"
            );
        }
    }
}
