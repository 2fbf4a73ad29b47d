use super::*;

/// As Jupyter writes it, with things that nobody here knows.
const FILE: &str = r#"{
 "cells": [
  {
   "cell_type": "markdown",
   "id": "intro",
   "metadata": {"x": 1.10},
   "source": [
    "\u0023 Title\n",
    "text"
   ]
  },
  {
   "cell_type": "code",
   "execution_count": 7,
   "id": "calc",
   "metadata": {},
   "outputs": [
    {
     "name": "stdout",
     "output_type": "stream",
     "text": [
      "1\n",
      "2\n"
     ]
    },
    {
     "data": {"image/png": "aGk=", "text/plain": "<Figure>"},
     "output_type": "display_data"
    },
    {
     "ename": "ValueError",
     "evalue": "bad",
     "output_type": "error",
     "traceback": ["\u001b[0;31mred\u001b[0m line"]
    }
   ],
   "source": "print(1)\nprint(2)",
   "tags": ["é"]
  }
 ],
 "metadata": {
  "kernelspec": {"language": "julia", "factor": 1e2},
  "unknown": 1.50
 },
 "nbformat": 4,
 "nbformat_minor": 5
}
"#;

fn open(text: &str) -> Notebook<'_> {
    Notebook::parse(text).unwrap()
}

#[test]
fn a_model_sees_cells_with_ids_and_outputs() {
    assert_eq!(
        render(FILE).unwrap(),
        "[notebook of format 4.5, julia]\n<cell id=\"intro\" type=\"markdown\">\n# Title\ntext\n</cell>\n<cell \
         id=\"calc\" type=\"code\">\nprint(1)\nprint(2)\n</cell>\n<output>\n1\n2\n</output>\n<output>\n<Figure>\n[image/png, \
         not shown]\n</output>\n<output>\nValueError: bad\nred line\n</output>\n"
    );
    let long = FILE.replace("\"1\\n\"", &format!("\"{}\"", "x".repeat(OUTPUT_CHARS + 1)));
    assert!(render(&long).unwrap().contains("[output cut: 2003 characters in all]"));
}

#[test]
fn a_replaced_cell_loses_its_outputs_and_the_rest_stays_byte_for_byte() {
    let at = open(FILE).find("calc").unwrap();
    let after = open(FILE).replace(at, "print(3)\n", None);
    let begin = FILE.find("   \"outputs\"").unwrap();
    let end = FILE.find(",\n   \"tags\"").unwrap();
    let expected = format!("{}   \"outputs\": [],\n   \"source\": \"print(3)\\n\"{}", &FILE[..begin], &FILE[end..]);
    let expected = expected.replace("\"execution_count\": 7", "\"execution_count\": null");
    assert_eq!(after, expected.replace("[\"é\"]", "[\n    \"é\"\n   ]"));
    // A list of lines stays a list of lines.
    let after = open(FILE).replace(0, "a\nb", None);
    assert!(after.contains("   \"source\": [\n    \"a\\n\",\n    \"b\"\n   ]\n  },\n"), "{after}");
    assert!(after.contains("\"factor\": 1e2") && after.contains("\"unknown\": 1.50"), "{after}");
}

#[test]
fn the_kind_of_a_cell_can_change() {
    let fields = |text: &str, at: usize| open(text).cells[at].fields.keys().cloned().collect::<Vec<_>>();
    let text = open(FILE).replace(1, "x", Some(CellType::Markdown));
    assert_eq!(fields(&text, 1), ["cell_type", "id", "metadata", "source", "tags"]);
    let code = open(FILE).replace(0, "x", Some(CellType::Code));
    assert_eq!(fields(&code, 0), ["cell_type", "id", "metadata", "source", "execution_count", "outputs"]);
}

#[test]
fn cells_come_and_go_at_every_place() {
    let ids = |text: &str| (0..open(text).cells.len()).map(|at| open(text).describe(at).0).collect::<Vec<_>>();
    for (at, expected) in [(0, 0), (1, 1), (2, 2)] {
        let (text, id) = open(FILE).insert(at, "new\nlines", CellType::Code);
        assert_eq!((id.len(), open(&text).find(&id).unwrap()), (8, expected));
        assert_eq!(ids(&text).into_iter().filter(|i| *i != id).collect::<Vec<_>>(), ["intro", "calc"]);
        let cell = format!(
            "  {{\n   \"cell_type\": \"code\",\n   \"execution_count\": null,\n   \"id\": \"{id}\",\n   \"metadata\": {{}},\n   \
             \"outputs\": [],\n   \"source\": [\n    \"new\\n\",\n    \"lines\"\n   ]\n  }}"
        );
        assert!(text.contains(&cell), "{text}");
        assert_eq!(open(&text).delete(at), FILE, "what was inserted can be deleted without a trace");
    }
    let one = open(FILE).delete(0);
    assert_eq!(ids(&one), ["calc"]);
    let none = open(&one).delete(0);
    assert!(none.starts_with("{\n \"cells\": [],\n \"metadata\""), "{none}");
    let (again, _) = open(&none).insert(0, "x", CellType::Markdown);
    assert!(again.starts_with("{\n \"cells\": [\n  {\n   \"cell_type\": \"markdown\",\n   \"id\""), "{again}");
    assert!(again.contains("\n  }\n ],\n \"metadata\""), "{again}");
}

#[test]
fn other_styles_are_kept() {
    let compact =
        r#"{"cells":[{"cell_type":"code","source":"a","metadata":{},"outputs":[],"execution_count":1}],"nbformat":4}"#;
    let after = open(compact).replace(0, "b", None);
    assert_eq!(after, compact.replace("\"a\"", "\"b\"").replace(":1}", ":null}"));
    let (two, id) = open(compact).insert(1, "x", CellType::Markdown);
    // Before format 4.5 cells have no ids.
    assert_eq!(id, "cell-1");
    assert!(two.ends_with(r#",{"cell_type":"markdown","metadata":{},"source":["x"]}],"nbformat":4}"#), "{two}");
    let wide = FILE.replace("\n ", "\n  ").replace("\n   ", "\n    ").replace('\n', "\r\n");
    let (text, _) = open(&wide).insert(2, "x", CellType::Code);
    assert!(!text.replace("\r\n", "").contains('\n'), "every line ends as before");
    assert_eq!(open(&text).delete(2), wide);
}

#[test]
fn cells_are_found_by_id_or_number() {
    let unnamed =
        r#"{"cells":[{"cell_type":"code"},{"cell_type":"raw","id":"cell-0"},{"id":"x"},{"id":"x"}],"nbformat":4}"#;
    let notebook = open(unnamed);
    assert_eq!((notebook.find("cell-1"), notebook.find("cell-3")), (Ok(1), Ok(3)));
    assert!(notebook.find("cell-0").unwrap_err().contains("name one by its number"), "number 0 and an id of that name");
    assert!(
        notebook.find("x").unwrap_err().contains("2 cells have the id \"x\"; name one by its number: cell-2, cell-3")
    );
    assert_eq!(
        notebook.find("cell-4").unwrap_err(),
        "there is no cell \"cell-4\"; the cells are cell-0 (code), cell-0 (raw), x (code), x (code)"
    );
    assert!(open(r#"{"cells":[],"nbformat":4}"#).find("a").unwrap_err().ends_with("there are no cells yet"));
    let many = format!("{{\"cells\":[{}],\"nbformat\":4}}", vec!["{}"; NAMED + 2].join(","));
    assert!(open(&many).find("a").unwrap_err().ends_with("cell-49 (code) and 2 more"));
}

#[test]
fn what_is_no_notebook_is_told() {
    for (text, expected) in [
        ("", "no notebook of format 4"),
        ("{}", "missing field"),
        (r#"{"nbformat": 3, "cells": []}"#, "notebook of format 3"),
        (r#"{"nbformat": 4, "cells": {}}"#, "no list of cells"),
        (r#"{"nbformat": 4, "cells": [3]}"#, "broken cell 0"),
    ] {
        let error = Notebook::parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
