"""Send one HTTP request to 127.0.0.1 and print the answer; the exit status is 0 for a 200.

python3 request.py PORT METHOD PATH [JSON]
"""

import http.client
import sys


def main() -> None:
    """Send what the command line says."""
    port, method, path, body = (*sys.argv[1:], None)[:4]
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=30)
    connection.request(method, path, body, headers={"content-type": "application/json"})
    response = connection.getresponse()
    print(response.read().decode())
    sys.exit(response.status != 200)


if __name__ == "__main__":
    main()
