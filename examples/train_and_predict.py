"""Train on a file of your own and ask the model: python examples/train_and_predict.py [DATA]

Without DATA it writes a small file and uses that.
"""

import sys
import tempfile
from pathlib import Path

import xclearn

TICKETS = """\
text,labels
I forgot my password,account;password
reset the password of my account,account;password
change the email address of my account,account;email
cannot send email with an attachment,email
the printer is out of paper,printer
paper jam in the printer,printer
no network connection in the office,network
cannot print over the network,network;printer
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "tickets.csv"
        if len(sys.argv) == 1:
            source.write_text(TICKETS, encoding="utf-8")
        data = xclearn.load_dataset(source)
        model = xclearn.OneVsAll().fit(data)
        model.save(Path(folder) / "model")
        predictor = xclearn.load(Path(folder) / "model")
        texts = list(data.train.documents[:3])
        for text, found in zip(texts, predictor.suggest(texts, k=3), strict=True):
            print(text)
            for label, score, _ in found:
                print(f"  {score:.2f}  {label}")


if __name__ == "__main__":
    main()
