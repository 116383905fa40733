// Package agenttest is a host made of memory, for testing drivers.
//
// A [Host] opens sessions on the drivers it is given and plays the person at the
// other end by the functions of a [Script]. It records what agents say in order;
// child sessions run on the same drivers. It uses no clock, so it works in a
// synctest bubble. [Run] is the suite that every driver must pass.
//
// agenttest imports frames and host/agent only; nothing but tests imports it.
package agenttest
