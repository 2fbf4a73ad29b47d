//! What is done to the windows that agents' panes are in: titles and colours on the borders, equal
//! tiles, and the way back to what a window looked like before. The state of a window is kept in
//! user's options of the window itself, so that it outlives the lead.

use super::quote;
use super::script::{Answer, Script};
use super::server::AGENT;

/// The user's option of a window that takes agents' panes of a lead: the id of the lead's pane.
pub(super) const SEAT: &str = "@lead_seat";

/// The user's option of a pane that holds its colour.
pub(super) const COLOUR: &str = "@lead_colour";

/// The title of an agent's pane on its border.
pub(super) const BORDER_FORMAT: &str = "#[fg=#{@lead_colour}] #{q/e:pane_title} #[default]";

/// Options of a window, what we set them to, and the user's option that keeps what was there.
const BORDERS: [(&str, &str, &str); 3] = [
    ("pane-border-status", "top", "@lead_was_status"),
    ("pane-border-style", "#{?@lead_colour,fg=#{@lead_colour},#{E:@lead_was_style}}", "@lead_was_style"),
    ("pane-active-border-style", "#{?@lead_colour,fg=#{@lead_colour},#{E:@lead_was_active}}", "@lead_was_active"),
];

/// The user's option that keeps a window's layout.
const LAYOUT: &str = "@lead_was_layout";

/// What a window for agents of a team is called, as a format.
pub(super) fn name(agent: &str) -> String {
    quote::format(agent.split_once('@').map_or("agents", |(_, team)| team))
}

/// Makes a window one that takes panes of the lead in pane `seat`. What it looked like is kept by the
/// first that does so.
pub(super) fn prepare(script: &mut Script, window: &str, seat: &str) {
    let mut then = Script::default();
    for (option, _, was) in BORDERS {
        then.add(["set-option", "-wF", "-t", window, was, &format!("#{{{option}}}")]);
    }
    then.add(["set-option", "-wF", "-t", window, LAYOUT, "#{window_layout}"]);
    for (option, value, _) in BORDERS {
        then.add(["set-option", "-w", "-t", window, option, value]);
    }
    script.add_if(window, &format!("#{{?{SEAT},,1}}"), &then);
    script.add(["set-option", "-w", "-t", window, SEAT, seat]);
}

/// Makes all panes of a window the same size, unless its user looks at one alone.
pub(super) fn tile(script: &mut Script, window: &str) {
    let mut then = Script::default();
    then.add(["select-layout", "-t", window, "tiled"]);
    script.add_if(window, "#{?window_zoomed_flag,,1}", &then);
}

/// After a pane has left a window: the others get its space, or without another agent in it the window
/// is again what it was. One that is gone is no matter.
pub(super) fn settle(script: &mut Script, window: &str) {
    let agents = format!("#{{P:#{{{AGENT}}}}}");
    let mut retile = Script::default();
    retile.add(["select-layout", "-t", window, "tiled"]);
    script.add_if(window, &format!("#{{&&:#{{?window_zoomed_flag,,1}},{agents}}}"), &retile);

    let mut restore = Script::default();
    for (option, _, was) in BORDERS {
        restore.add(["set-option", "-wu", "-t", window, option]);
        let mut again = Script::default();
        again.add(["set-option", "-wF", "-t", window, option, &format!("#{{{was}}}")]);
        // If it was not set for this window it is by now what it was.
        restore.add_if(window, &format!("#{{!=:#{{{option}}},#{{{was}}}}}"), &again);
        restore.add(["set-option", "-wu", "-t", window, was]);
    }
    // Refused if there are other panes than then.
    restore.add(["run-shell", "-C", "-t", window, &format!("select-layout -t {window} '#{{{LAYOUT}}}'")]);
    restore.add(["set-option", "-wu", "-t", window, LAYOUT]);
    restore.add(["set-option", "-wu", "-t", window, SEAT]);
    script.add_if(window, &format!("#{{&&:#{{{SEAT}}},#{{?{agents},,1}}}}"), &restore);
}

/// Lets a window take no further panes: it is nobody's. It keeps what it looked like.
pub(super) fn disown(script: &mut Script, window: &str) {
    script.add(["set-option", "-w", "-t", window, SEAT, "nobody"]);
}

/// Asks for the windows that took panes and have none any more.
pub(super) fn list_abandoned(script: &mut Script) {
    let filter = format!("#{{&&:#{{{SEAT}}},#{{?#{{P:#{{{AGENT}}}}},,1}}}}");
    script.add(["list-windows", "-a", "-f", &filter, "-F", "lead:abandoned #{window_id}"]);
}

/// The windows that [`list_abandoned`] asked for.
pub(super) fn abandoned(answer: &Answer) -> Vec<String> {
    let mut windows: Vec<String> = answer.tagged("abandoned").flatten().map(str::to_owned).collect();
    windows.sort_unstable();
    windows.dedup();
    windows
}
