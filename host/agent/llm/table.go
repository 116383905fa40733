package llm

import "maps"

// toolTable returns all tools by name.
func toolTable() map[string]tool {
	all := fileTools()
	maps.Copy(all, otherTools())
	return all
}

func fileTools() map[string]tool {
	return map[string]tool{
		"read": {
			kind: "read", gated: true, keys: []string{"path", "from", "lines"}, input: func() input { return &readInput{} },
			doc: "Read a text file. Long files come in parts: the answer says how to go on.",
			params: `{"path":{"type":"string"},"from":{"type":"integer","description":"first line, from 1"},` +
				`"lines":{"type":"integer","description":"how many lines at most"}}|path`,
		},
		"write": {
			kind: "edit", gated: true, keys: []string{"path", "content"}, input: func() input { return &writeInput{} },
			doc:    "Write a whole file, new or in place of an old one. Missing directories are made.",
			params: `{"path":{"type":"string"},"content":{"type":"string"}}|path,content`,
		},
		"edit": {
			kind: "edit", gated: true, keys: []string{"path", "old", "new", "all"}, input: func() input { return &editInput{} },
			doc: "Replace text in a file. The old text must occur exactly once, or all is true.",
			params: `{"path":{"type":"string"},"old":{"type":"string"},"new":{"type":"string"},` +
				`"all":{"type":"boolean"}}|path,old,new`,
		},
		"list": {
			kind: "search", gated: true, keys: []string{"path", "depth"}, input: func() input { return &listInput{} },
			doc:    "List a directory, default the one you work in.",
			params: `{"path":{"type":"string"},"depth":{"type":"integer","description":"levels, 1 to 5; default 1"}}|`,
		},
		"search": {
			kind: "search", gated: true, keys: []string{"pattern", "path", "glob", "ignoreCase"}, input: func() input { return &searchInput{} },
			doc: "Search text files for a regular expression (RE2), line by line.",
			params: `{"pattern":{"type":"string"},"path":{"type":"string","description":"a file or directory"},` +
				`"glob":{"type":"string","description":"only files whose name matches, such as *.go"},"ignoreCase":{"type":"boolean"}}|pattern`,
		},
	}
}

func otherTools() map[string]tool {
	return map[string]tool{
		"shell": {
			kind: "execute", gated: true, keys: []string{"command", "cwd", "timeoutMs"}, input: func() input { return &shellInput{} },
			doc: "Run a command line with sh and see its output. It has no input, and ends with everything it started.",
			params: `{"command":{"type":"string"},"cwd":{"type":"string","description":"where, default the directory you work in"},` +
				`"timeoutMs":{"type":"integer"}}|command`,
		},
		"spawn": {
			kind: "other", gated: true, keys: []string{"agent", "prompt", "title"}, input: func() input { return &spawnInput{} },
			doc: "Hand a task to another agent, and wait for its answer. It knows only the prompt.",
			params: `{"prompt":{"type":"string"},"title":{"type":"string"},"agent":{"type":"string",` +
				`"description":"the name of an agent of another kind, where the person named one; default one like you"}}|prompt`,
		},
		"ask": {
			kind: "other", keys: []string{"question", "options", "multiSelect"}, input: func() input { return &askInput{} },
			doc: "Ask the person a question, with options to choose from or for free text.",
			params: `{"question":{"type":"string"},"options":{"type":"array","items":{"type":"string"}},` +
				`"multiSelect":{"type":"boolean"}}|question`,
		},
		"todo": {
			kind: "think", keys: []string{"todos"}, input: func() input { return &todoInput{} },
			doc: "Write your plan: the whole list, every time.",
			params: `{"todos":{"type":"array","items":{"type":"object","properties":{"content":{"type":"string"},` +
				`"status":{"type":"string","enum":["pending","in_progress","completed"]}},"required":["content","status"]}}}|todos`,
		},
	}
}
