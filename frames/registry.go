package frames

import (
	"reflect"
	"slices"
	"strings"
)

var (
	eventIndex = indexEvents()
	frameIndex = indexFrames()
	lists      = indexLists()
)

// EventTypes returns the table of event types, family by family. The slice is
// the caller's.
func EventTypes() []EventInfo { return slices.Clone(eventTypes) }

// FrameTypes returns the table of frame types. The slice is the caller's.
func FrameTypes() []FrameInfo { return slices.Clone(frameTypes) }

// ClassOf returns the class of t. A type that is not in the table is an agent's
// own and durable.
func ClassOf(t EventType) Class {
	if info, ok := eventIndex[t]; ok {
		return info.Class
	}
	return ClassDurable
}

func indexEvents() map[EventType]EventInfo {
	m := make(map[EventType]EventInfo, len(eventTypes))
	for _, info := range eventTypes {
		m[info.Type] = info
	}
	return m
}

func indexFrames() map[FrameType]FrameInfo {
	m := make(map[FrameType]FrameInfo, len(frameTypes))
	for _, info := range frameTypes {
		m[info.Type] = info
	}
	return m
}

// indexLists maps every struct of the registry to its list fields that must
// never be null on the wire.
func indexLists() map[reflect.Type][]int {
	m := make(map[reflect.Type][]int)
	for _, info := range eventTypes {
		t := reflect.TypeOf(info.New()).Elem()
		m[t] = listFields(t)
	}
	for _, info := range frameTypes {
		t := reflect.TypeOf(info.New()).Elem()
		m[t] = listFields(t)
	}
	return m
}

// listFields returns the slice fields of t that have no omitempty. Raw JSON is
// no list.
func listFields(t reflect.Type) []int {
	var at []int
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Type.Kind() != reflect.Slice || f.Type.Elem().Kind() == reflect.Uint8 || !f.IsExported() {
			continue
		}
		if tag := f.Tag.Get("json"); !strings.Contains(tag, ",omit") {
			at = append(at, i)
		}
	}
	return at
}
