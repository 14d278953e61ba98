class _Silent:
    def update(self, states):
        pass

    def close(self, outcome):
        pass


def show(workers, replicas, mode, folder, title=""):
    return _Silent()
