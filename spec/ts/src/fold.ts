/** The fold: frames in, the view of a session out. It does no I/O and knows no clock. */
export { byteLength } from "./bytes.js";
export { Folder } from "./folder.js";
export { applyEvent, applyFrame, durableView, FoldIssue, newView } from "./fold_frame.js";
export { SessionView } from "./view.js";
export { isEvent, isFrame, knownEvent, knownFrame, sessionOf } from "./wire.js";
export type { Frame } from "./wire.js";
export type * from "./gen.js";
