package config

import (
	"errors"
	"net/url"
)

// checkURL checks the address of an endpoint. Its errors repeat nothing of it.
func checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return errors.New("it is no URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return errors.New("it does not begin with http:// or https:// and a host")
	case u.User != nil:
		return errors.New("it holds a password; name the variable with the key in api-key-env")
	case u.RawQuery != "", u.Fragment != "":
		return errors.New("it has a query")
	}
	return nil
}
