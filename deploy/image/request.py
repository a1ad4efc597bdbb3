"""Send one HTTP request to 127.0.0.1 and print the answer; the exit status is 0 for a 200.

python3 request.py PORT METHOD PATH [JSON]
"""

import http.client
import sys


def main() -> None:
    """Send what the command line says."""
    port, method, path, *rest = sys.argv[1:]
    body = rest[0] if rest else None
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=30)
    connection.request(method, path, body, {"content-type": "application/json"})
    response = connection.getresponse()
    print(response.read().decode())
    sys.exit(response.status != 200)


if __name__ == "__main__":
    main()
