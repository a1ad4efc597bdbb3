"""Load that goes on while something happens to the service, with a look at every answer."""

import itertools
import threading

from running import until

from logitd import Client


class Load:
    """Threads that ask one case after another until the block ends.

    Args:
        url: who is asked.
        cases: pairs of what `ask` gets behind the client, and the answer that is right.
        ask: called with a client and the arguments of a case.
        threads: how many; each begins with another case.
        client: options of the threads' clients.

    Attributes:
        faults: the number of a case, and the other answer or the exception that came.
        answered: how many answers were right.
    """

    def __init__(self, url, cases, ask, threads, **client):
        self._url, self._cases, self._ask, self._client = url, cases, ask, client
        self._stop = threading.Event()
        self.faults, self.answered = [], 0
        self._threads = [threading.Thread(target=self._run, args=(place,)) for place in range(threads)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def more(self, count):
        """Wait for more than so many right answers from now on."""
        answered = self.answered
        until(lambda: self.answered > answered + count, seconds=90)

    def _run(self, place):
        with Client(self._url, **self._client) as client:
            turns = itertools.islice(itertools.cycle(enumerate(self._cases)), place, None)
            for number, (arguments, expected) in turns:
                if self._stop.is_set():
                    return
                try:
                    found = self._ask(client, *arguments)
                except Exception as error:
                    found = error
                if found == expected:
                    self.answered += 1
                else:
                    self.faults.append((number, found))
