"""What the drive says where nothing can be driven."""

from __future__ import annotations

import asyncio
import socket
import unittest

from drive import drive


class Unreachable(unittest.TestCase):
    def test_an_address_without_a_host_is_told_soon(self) -> None:
        """A client tries for ever; the drive gives up and names the address."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # and does not listen
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
            wrong = asyncio.run(asyncio.wait_for(drive(url, "x", patience=0.2), 10))
        self.assertEqual(len(wrong), 1)
        self.assertIn(f"no connection to {url} within 0.2 s", wrong[0])


if __name__ == "__main__":
    unittest.main()
