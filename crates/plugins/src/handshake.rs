//! The handshake of a plugin process: one line on its standard output, as in hashicorp/go-plugin
//! 1.7 (`server.go`). Pure.

use std::path::PathBuf;

/// The variable by which a binary knows that Velero starts it, and its value (Velero
/// `pkg/plugin/framework/handshake.go`, v1.18).
pub(crate) const COOKIE: (&str, &str) = ("VELERO_PLUGIN", "hello");
/// The protocol version.
pub(crate) const PROTOCOL: &str = "2";
/// Minimum length of a certificate; some older versions of go-plugin write something shorter in its
/// place.
const MIN_CERTIFICATE_BYTES: usize = 50;

/// Parses the address of a plugin from its line `1|2|unix|<path>|grpc|…`; the error says what is
/// wrong with the line.
pub(crate) fn address(line: &str) -> Result<PathBuf, String> {
    let parts: Vec<&str> = line.trim().split('|').collect();
    let [core, protocol, network, address, rest @ ..] = parts.as_slice() else {
        return Err(format!(
            "it says {line:?}, which is not how a plugin begins"
        ));
    };
    if *core != "1" {
        return Err(format!(
            "it speaks version {core} of go-plugin's protocol, and not 1: build it again"
        ));
    }
    if *protocol != PROTOCOL {
        return Err(format!(
            "it is a plugin for version {protocol} of Velero's protocol, and not {PROTOCOL}"
        ));
    }
    if rest.first() != Some(&"grpc") {
        return Err(format!("it does not speak gRPC: {line:?}"));
    }
    if *network != "unix" || !address.starts_with('/') {
        return Err(format!("it does not listen on a Unix socket: {line:?}"));
    }
    if rest
        .get(1)
        .is_some_and(|certificate| certificate.len() > MIN_CERTIFICATE_BYTES)
    {
        return Err("it asks for TLS, which plugins of Velero do not use".to_owned());
    }
    Ok(PathBuf::from(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("1|2|unix|/tmp/plugin1|grpc|\n", Ok("/tmp/plugin1"))]
    #[case("1|2|unix|/tmp/plugin1|grpc", Ok("/tmp/plugin1"))]
    #[case("1|2|unix|/tmp/plugin1|grpc||true", Ok("/tmp/plugin1"))]
    #[case("hello, I am no plugin", Err("not how a plugin begins"))]
    #[case("", Err("not how a plugin begins"))]
    #[case("2|2|unix|/tmp/plugin1|grpc|", Err("version 2 of go-plugin"))]
    #[case("1|1|unix|/tmp/plugin1|grpc|", Err("version 1 of Velero"))]
    #[case("1|2|tcp|127.0.0.1:1|grpc|", Err("Unix socket"))]
    #[case("1|2|unix|plugin1|grpc|", Err("Unix socket"))]
    #[case("1|2|unix|/tmp/plugin1|netrpc|", Err("gRPC"))]
    #[case("1|2|unix|/tmp/plugin1", Err("gRPC"))]
    fn a_line_says_where_a_plugin_is(#[case] line: &str, #[case] expected: Result<&str, &str>) {
        match (address(line), expected) {
            (Ok(path), Ok(expected)) => assert_eq!(path, PathBuf::from(expected)),
            (Err(reason), Err(expected)) => assert_says!(reason, expected),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn tls_is_refused() {
        let line = format!("1|2|unix|/tmp/p|grpc|{}", "A".repeat(400));
        assert_says!(address(&line).unwrap_err(), "TLS");
    }
}
