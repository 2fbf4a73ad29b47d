//! URLs of web pages: read strictly, so that what a permission rule saw as the host is the host that
//! is asked, and joined with what pages and redirects refer to (RFC 3986, 5.2).

use std::fmt;

use hyper::Uri;

/// An absolute http or https URL without user name and fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    uri: Uri,
}

impl Address {
    /// Reads what a model or a redirect gave. The error says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        // Readers of URLs differ over these, and with them over the host.
        if text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\') {
            return Err("it holds a blank, a control character or a backslash; encode it with %".to_owned());
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("it is no absolute URL; give one that begins with https:// or http://".to_owned());
        };
        if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return Err(format!("only http and https can be fetched, not {scheme}"));
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err("it holds a user name or password, which is not sent; leave it out".to_owned());
        }
        if !authority.is_ascii() {
            return Err("its host is not in ASCII; write it in its xn-- form".to_owned());
        }
        if authority.is_empty() {
            return Err("it names no host".to_owned());
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        let whole = format!("{}://{authority}{slash}{}", scheme.to_ascii_lowercase(), encoded(path));
        let uri: Uri = whole.parse().map_err(|e| format!("it is no URL ({e})"))?;
        if uri.host().is_none_or(str::is_empty) {
            return Err("it names no host".to_owned());
        }
        // A port that is none would be taken for the usual one.
        let port = authority.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.ends_with(']'));
        if port.is_some_and(|port| port.parse::<u16>().ok().filter(|n| *n > 0).is_none()) {
            return Err("its port is not one of 1 to 65535".to_owned());
        }
        Ok(Self { uri })
    }

    /// For a request.
    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The host, in lower case and without the dot that may end it.
    pub(super) fn host(&self) -> String {
        self.uri.host().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase()
    }

    fn is_https(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(if self.is_https() { 443 } else { 80 })
    }

    /// Whether a redirect from here to `to` stays with the same server: the same host and port, or
    /// its encrypted side. It never leads back to plain http.
    pub(super) fn may_lead_to(&self, to: &Self) -> bool {
        let same_port = self.port() == to.port() && self.is_https() == to.is_https();
        let upgraded = !self.is_https() && to.is_https() && (self.port(), to.port()) == (80, 443);
        self.host() == to.host() && (same_port || upgraded)
    }

    /// What `reference`, found in the page at this address, refers to.
    pub(super) fn join(&self, reference: &str) -> Result<Self, String> {
        let reference: String = reference.trim().chars().filter(|c| !c.is_control()).collect();
        let reference = reference.replace(' ', "%20");
        let reference = reference.split('#').next().unwrap_or_default();
        let scheme = self.uri.scheme_str().unwrap_or_default();
        let authority = self.uri.authority().map_or("", |a| a.as_str());
        let (path, query) = (self.uri.path(), self.uri.query());
        if has_scheme(reference) {
            return Self::parse(reference);
        }
        if let Some(rest) = reference.strip_prefix("//") {
            return Self::parse(&format!("{scheme}://{rest}"));
        }
        let (own, own_query) = match reference.split_once('?') {
            Some((own, query)) => (own, Some(query)),
            None => (reference, None),
        };
        let (path, query) = match own {
            "" => (path.to_owned(), own_query.or(query)),
            own if own.starts_with('/') => (without_dots(own), own_query),
            own => {
                let folder = &path[..=path.rfind('/').unwrap_or(0)];
                (without_dots(&format!("{folder}{own}")), own_query)
            }
        };
        let query = query.map(|q| format!("?{q}")).unwrap_or_default();
        Self::parse(&format!("{scheme}://{authority}{path}{query}"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}

/// Whether it begins with `name:`.
fn has_scheme(reference: &str) -> bool {
    reference.split_once(':').is_some_and(|(name, _)| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    })
}

/// Path and query with everything encoded that may not stand in them.
fn encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x7f.. => out.push_str(&format!("%{byte:02X}")),
            byte => out.push(char::from(byte)),
        }
    }
    out
}

/// `/a/../b/./c` → `/b/c`.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    for (at, part) in parts.iter().enumerate() {
        let is_last = at + 1 == parts.len();
        match *part {
            "." | ".." => {
                if *part == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            part => kept.push(part),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Address {
        Address::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn addresses_are_read_strictly() {
        for (text, shown) in [
            ("https://a.example", "https://a.example/"),
            ("HTTP://A.example:80/x#part", "http://A.example:80/x"),
            ("http://[::1]:8080/?q=1", "http://[::1]:8080/?q=1"),
            ("https://a.example?q=ä b".replace(' ', "%20").as_str(), "https://a.example/?q=%C3%A4%20b"),
            ("https://a.example/{x}|\"", "https://a.example/%7Bx%7D%7C%22"),
        ] {
            assert_eq!(at(text).to_string(), shown);
        }
        for (text, part) in [
            ("ftp://a.example/x", "not ftp"),
            ("file:///etc/passwd", "not file"),
            ("a.example", "absolute"),
            ("https://", "no host"),
            ("https:///x", "no host"),
            ("https://me:pw@a.example/", "user name"),
            ("https://good.example\\@bad.example/", "backslash"),
            ("https://a.example /", "blank"),
            ("https://a.exa\nmple/", "control"),
            ("https://bücher.example/", "xn--"),
            ("https://a.example:0/", "port"),
            ("https://a.example:70000/", "port"),
            ("https://a.example:/", "port"),
        ] {
            let error = Address::parse(text).err().unwrap_or_default();
            assert!(error.contains(part) && !error.contains("pw"), "{text}: {error}");
        }
    }

    #[test]
    fn references_are_joined() {
        let base = at("https://a.example/d/e/f?q=1");
        for (reference, joined) in [
            ("g", "https://a.example/d/e/g"),
            ("./g?y", "https://a.example/d/e/g?y"),
            ("../g", "https://a.example/d/g"),
            ("../../../g/.", "https://a.example/g/"),
            ("/g/../h", "https://a.example/h"),
            ("?y", "https://a.example/d/e/f?y"),
            ("", "https://a.example/d/e/f?q=1"),
            ("#s", "https://a.example/d/e/f?q=1"),
            ("//b.example/x", "https://b.example/x"),
            (" http://b.example/a b ", "http://b.example/a%20b"),
        ] {
            assert_eq!(base.join(reference).map(|a| a.to_string()).as_deref(), Ok(joined), "{reference}");
        }
        for bad in ["javascript:alert(1)", "mailto:a@b", "data:text/plain,x", "//me@b.example"] {
            assert!(base.join(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_redirect_stays_with_the_server_or_goes_to_its_encrypted_side() {
        let may = |from: &str, to: &str| at(from).may_lead_to(&at(to));
        assert!(may("https://a.example/x", "https://A.example./y"));
        assert!(may("http://a.example", "https://a.example/"));
        assert!(may("http://a.example:8080/", "http://a.example:8080/z"));
        for (from, to) in [
            ("https://a.example", "https://www.a.example"),
            ("https://a.example", "http://a.example"),
            ("http://localhost:8080", "http://localhost:6379"),
            ("http://localhost:8080", "https://localhost:8443"),
        ] {
            assert!(!may(from, to), "{from} {to}");
        }
    }
}
