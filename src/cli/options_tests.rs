use std::fs;

use clap::Parser;

use super::*;
use crate::cli::args::Cli;
use crate::core::paths::ConfigDir;

struct Site {
    _dir: tempfile::TempDir,
    folders: Folders,
}

/// Folders of their own, with `settings` as the user's.
fn site(settings: &str, environment: &[(&str, &str)]) -> Site {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for folder in ["config", "work"] {
        fs::create_dir(root.join(folder)).unwrap();
    }
    fs::write(root.join("config/settings.json"), settings).unwrap();
    let folders = Folders {
        config: ConfigDir::new(root.join("config")),
        runtime: root.join("r"),
        home: Some(root.clone()),
        cwd: root.join("work"),
        environment: environment.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
    };
    Site { _dir: dir, folders }
}

fn flags(args: &[&str]) -> RunArgs {
    Cli::try_parse_from(["lead", "-p"].iter().chain(args)).unwrap().run
}

fn resolved(site: &Site, args: &[&str]) -> Result<SessionOptions, CliError> {
    let run = Run::of_flags(flags(args));
    let choice = session_choice(&run.flags)?;
    // The working folder of this process is not the site's.
    let mut run = run;
    run.flags.cwd.get_or_insert_with(|| site.folders.cwd.clone());
    resolve(&run, choice, &site.folders)
}

#[test]
fn the_model_is_the_flag_s_then_the_settings_then_the_environment_s() {
    let with_all = site(r#"{"model": "sonnet"}"#, &[(env::MODEL, "haiku")]);
    let id = |site: &Site, args: &[&str]| resolved(site, args).unwrap().model.id;
    assert_eq!(id(&with_all, &["x", "--model", "opus"]), with_all_models().resolve("opus").unwrap().id);
    assert_eq!(id(&with_all, &["x"]), with_all_models().resolve("sonnet").unwrap().id);
    let bare = site("{}", &[(env::MODEL, "claude-env-1")]);
    assert_eq!(id(&bare, &["x"]), "claude-env-1");
    let in_settings = site(r#"{"env": {"ANTHROPIC_MODEL": "claude-set-1"}}"#, &[(env::MODEL, "claude-env-1")]);
    assert_eq!(id(&in_settings, &["x"]), "claude-set-1");
    let none = site("{}", &[(env::MODEL, "")]);
    assert!(matches!(resolved(&none, &["x"]), Err(CliError::NoModel)));
    assert!(matches!(resolved(&none, &["x", "--model", "gpt-9"]), Err(CliError::UnknownModel(_))));
}

fn with_all_models() -> ModelTable {
    ModelTable::default()
}

#[test]
fn playbook_files_are_found_from_everywhere_and_built_in_names_stay() {
    let dir = tempfile::tempdir().unwrap();
    let cwd = &dir.path().canonicalize().unwrap();
    fs::write(cwd.join("mine"), b"").unwrap();
    let at = |file: &str| format!("playbook:{}", cwd.join(file).display());
    assert_eq!(playbook_path("playbook:b.yaml", cwd), at("b.yaml"));
    assert_eq!(playbook_path("playbook:sub/b", cwd), at("sub/b"));
    assert_eq!(playbook_path("playbook:/abs/b.yaml", cwd), "playbook:/abs/b.yaml");
    assert_eq!(playbook_path("playbook:mine", cwd), at("mine"));
    fs::create_dir(cwd.join("sub")).unwrap();
    assert_eq!(playbook_path("playbook:../mine", &cwd.join("sub")), at("mine"));
    assert_eq!(playbook_path("playbook:survey", cwd), "playbook:survey");
    assert_eq!(playbook_path("sonnet", cwd), "sonnet");
}

#[test]
fn settings_and_flags_meet_in_the_options() {
    let site = site(
        r#"{"model": "playbook:x.yaml", "env": {"A": "set", "B": "new"},
            "permissions": {"allow": ["Read"], "defaultMode": "plan"}}"#,
        &[("A", "environment"), ("C", "kept")],
    );
    let extra = site.folders.cwd.join("extra");
    fs::create_dir(&extra).unwrap();
    let args = [
        "do it",
        "--allowed-tools",
        "Bash(git log:*), Edit",
        "--disallowedTools",
        "Write",
        "--add-dir",
        "extra",
        "--max-turns",
        "4",
        "--append-system-prompt",
        "more",
    ];
    let options = resolved(&site, &args).unwrap();
    let allowed: Vec<&str> = options.rules.allow.iter().map(|r| r.rule.as_str()).collect();
    assert_eq!(allowed, ["Read", "Bash(git log:*)", "Edit"]);
    assert_eq!(options.rules.deny[0].rule, "Write");
    assert_eq!(options.rules.additional_directories, [extra]);
    assert_eq!((options.mode, options.max_turns), (Mode::Plan, Some(4)));
    assert_eq!(options.append_system_prompt.as_deref(), Some("more"));
    let var =
        |name: &str| options.environment.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str()).collect::<Vec<_>>();
    assert_eq!((var("A"), var("B"), var("C")), (vec!["set"], vec!["new"], vec!["kept"]));
    let mode = |args: &[&str]| resolved(&site, args).unwrap().mode;
    assert_eq!(mode(&["x", "--permission-mode", "acceptEdits"]), Mode::AcceptEdits);
    assert_eq!(mode(&["x", "--dangerously-skip-permissions"]), Mode::BypassPermissions);
}

#[test]
fn r093_broken_settings_modes_and_folders_are_errors_that_name_them() {
    let broken = site("{", &[]);
    assert!(matches!(resolved(&broken, &["x"]), Err(CliError::Settings(_))));
    let odd = site(r#"{"model": "opus", "permissions": {"defaultMode": "yolo"}}"#, &[]);
    let error = resolved(&odd, &["x"]).unwrap_err().to_string();
    assert!(error.contains("defaultMode") && error.contains("yolo"), "{error}");
    let fine = site(r#"{"model": "opus"}"#, &[]);
    for args in [["x", "--cwd", "/nowhere/x"], ["x", "--add-dir", "/nowhere/x"]] {
        assert!(matches!(resolved(&fine, &args), Err(CliError::Folder { .. })), "{args:?}");
    }
}

#[test]
fn sessions_are_named_by_uuids() {
    let id = "3F2504E0-4F89-41D3-9A0C-0305E82C3301";
    let low = SessionId::parse(id).unwrap();
    assert_eq!(session_choice(&flags(&["--resume", id])).unwrap(), SessionChoice::Resume(low.clone()));
    assert_eq!(session_choice(&flags(&["x", "--session-id", id])).unwrap(), SessionChoice::New(low));
    assert_eq!(session_choice(&flags(&["-c"])).unwrap(), SessionChoice::Continue);
    for bad in [["--resume", "abc"], ["--session-id", "../x"]] {
        assert!(matches!(session_choice(&flags(&bad)), Err(CliError::Usage { .. })), "{bad:?}");
    }
}

#[test]
fn the_administrators_settings_win_over_flags() {
    let place = site("{}", &[]);
    let managed = place.folders.home.clone().unwrap().join("managed.json");
    fs::write(&managed, r#"{"permissions": {"defaultMode": "plan"}, "model": "managed"}"#).unwrap();
    let load = |mode: Option<&str>| {
        let mut sources = sources(&place.folders.cwd, None, &place.folders).unwrap();
        sources.managed = Some(managed.clone());
        sources.flags.mode = mode.map(str::to_owned);
        (Settings::load(&sources).unwrap(), sources.flags)
    };
    for said in [None, Some("bypassPermissions"), Some("default")] {
        let (loaded, flags) = load(said);
        assert_eq!(mode(&loaded, &flags).unwrap(), Mode::Plan, "{said:?}");
        assert_eq!(not_overruled(&loaded, "model", "--model", Some("flag")), None);
        assert_eq!(not_overruled(&loaded, "agent", "--agent", Some("flag")), Some("flag"));
    }
    fs::write(&managed, r#"{"permissions": {"defaultMode": "yolo"}}"#).unwrap();
    let (loaded, flags) = load(Some("plan"));
    let error = mode(&loaded, &flags).unwrap_err().for_person();
    assert!(error.contains("managed.json") && error.contains("yolo"), "{error}");
}

#[test]
fn settings_from_a_pipe_are_read_once_and_kept() {
    let place = site("{}", &[]);
    let pipe = place.folders.cwd.join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (content, kept) in [(" {\"model\": \"x\"}\n", Some("{\"model\": \"x\"}")), ("\n", Some("{}")), ("[1]", None)] {
        let (to, text) = (pipe.clone(), content.to_owned());
        let writer = std::thread::spawn(move || fs::write(to, text).unwrap());
        let read = settings_flag("pipe", &place.folders);
        writer.join().unwrap();
        assert_eq!(read.ok().as_deref(), kept, "{content:?}");
    }
    assert!(settings_flag("file.json", &place.folders).unwrap().ends_with("/work/file.json"));
}
